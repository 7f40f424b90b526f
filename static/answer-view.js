// One answer on the page: how far it is, its text, why it ended, what went wrong, and its numbers.

import { stageOf, whyOf } from './announcer.js';
import { askAgain, askDifferently, goOn } from './asking.js';
import { copyButton } from './copy-button.js';
import { icon, make, say } from './dom.js';
import { detailOf, duration, labelled, meaning, t } from './i18n.js';
import { leave } from './keeping.js';
import { renderAnswer } from './rendering.js';
import { state } from './state.js';
import { isOver } from './turn.js';

const CUT = ['length', 'timeout'];

/** A node with a method `refresh()`. */
export function answerView(turn) {
  const parts = [progressPart, textPart, notePart, whyPart, errorPart, metaPart].map((part) => part(turn));
  const node = make('article', { class: 'answer' }, ...parts);
  node.refresh = () => {
    node.setAttribute('aria-label', t('answer'));
    node.setAttribute('aria-busy', String(!isOver(turn)));
    node.dataset.phase = turn.phase;
    parts.forEach((part) => part.refresh());
  };
  node.refresh();
  return node;
}

function part(node, refresh) {
  node.refresh = refresh;
  return node;
}

function textPart(turn) {
  return part(make('div', { class: 'answer-text', dir: 'auto' }), function refresh() {
    this.hidden = !turn.text;
    renderAnswer(this, turn.text);
  });
}

// A judgement that somebody may act on is not left to stand alone.
function notePart(turn) {
  const words = make('span');
  return part(make('p', { class: 'note' }, icon('alert'), words), function refresh() {
    this.hidden = turn.task !== 'check' || !turn.text;
    say(words, t('preset.check.note'));
  });
}

function progressPart(turn) {
  const stage = make('span', { class: 'stage' });
  const aside = make('span', { class: 'aside' });
  const fill = make('span', { class: 'bar-fill' });
  const bar = make('div', { class: 'bar', role: 'progressbar', 'aria-valuemin': '0', 'aria-valuemax': '100' }, fill);
  let stageBefore = ''; // a new stage starts at its own fraction instead of sliding back to it
  const node = make('div', { class: 'progress' }, make('p', { class: 'stage-line' }, stage, aside), bar);
  return part(node, () => {
    node.hidden = isOver(turn) || (turn.phase === 'writing' && state.connected);
    if (node.hidden) return;
    const fraction = fractionOf(turn);
    say(stage, stageOf(turn));
    say(aside, asideOf(turn));
    bar.classList.toggle('bar-unknown', fraction === null);
    bar.classList.toggle('bar-jump', turn.stage !== stageBefore || fraction === null);
    stageBefore = turn.stage;
    bar.setAttribute('aria-label', stage.textContent);
    if (fraction === null) bar.removeAttribute('aria-valuenow');
    else bar.setAttribute('aria-valuenow', String(Math.round(fraction * 100)));
    fill.style.transform = fraction === null ? '' : `scaleX(${fraction})`;
  });
}

// How far the current stage is, 0 to 1; null where nobody knows.
function fractionOf(turn) {
  if (isWaitingForModel(turn)) return state.health.fraction ?? null;
  if (turn.phase === 'sending') {
    const sending = turn.pictures.filter((picture) => picture.phase !== 'ready');
    return sending.length ? sending.reduce((sum, picture) => sum + picture.fraction, 0) / sending.length : null;
  }
  return turn.stage === 'queued' || !state.connected ? null : turn.fraction;
}

const isWaitingForModel = (turn) => turn.phase === 'sending' && state.health.status === 'loading';

function asideOf(turn) {
  const words = [];
  if (turn.stage === 'queued' && turn.position > 0) words.push(t('ahead', { position: turn.position }));
  const eta = isWaitingForModel(turn) ? (state.health.eta_s ?? null) : turn.eta;
  if (eta !== null) words.push(t('eta', { time: duration(Math.max(1, Math.round(eta))) }));
  const seconds = Math.floor((performance.now() - turn.since) / 1000);
  if (eta === null && seconds >= 2) words.push(duration(seconds));
  return words.join(' · ');
}

function whyPart(turn) {
  const words = make('span');
  const more = make('button', { type: 'button', class: 'chip' });
  more.addEventListener('click', () => goOn(turn));
  return part(make('p', { class: 'why' }, words, more), function refresh() {
    this.hidden = turn.phase !== 'done' || !whyOf(turn);
    if (this.hidden) return;
    say(words, whyOf(turn));
    say(more, t('goon'));
    more.hidden = !CUT.includes(turn.reason) || !turn.text || turn !== state.turns.at(-1);
    more.disabled = Boolean(state.active);
  });
}

function errorPart(turn) {
  const words = make('strong');
  const detail = make('span', { class: 'error-detail' });
  const retry = make('button', { type: 'button', class: 'chip' });
  retry.addEventListener('click', () => (isTooLong(turn) ? leave() : askAgain(turn)));
  const message = make('p', {}, words, ' ', detail);
  return part(make('div', { class: 'error' }, icon('alert'), message, retry), function refresh() {
    this.hidden = turn.phase !== 'failed';
    if (this.hidden) return;
    say(words, meaning(turn.failure.code));
    say(detail, detailOf(turn.failure));
    say(retry, t(isTooLong(turn) ? 'new' : 'retry'));
    retry.disabled = Boolean(state.active);
  });
}

const isTooLong = (turn) => turn.failure?.code === 'context_length_exceeded';

function metaPart(turn) {
  const facts = make('ul', { class: 'facts' });
  const copy = copyButton(() => turn.text, 'copy');
  const again = make('button', { type: 'button', class: 'quiet' }, icon('retry'));
  labelled(again, 'again');
  again.addEventListener('click', () => askDifferently(turn));
  let drawn = '';
  return part(make('footer', { class: 'meta' }, copy, again, facts), function refresh() {
    this.hidden = !isOver(turn) || (!turn.text && turn.phase === 'failed');
    copy.hidden = !turn.text;
    again.hidden = turn.phase !== 'done' || turn !== state.turns.at(-1);
    again.disabled = Boolean(state.active);
    const now = `${state.language} ${turn.requestId} ${Boolean(turn.result)}`;
    if (this.hidden || now === drawn) return;
    drawn = now;
    facts.replaceChildren(...factsOf(turn));
  });
}

function factsOf({ result }) {
  const images = result?.images ?? [];
  const { first_token_s: first, tokens_per_s: rate } = result?.timings ?? {};
  const facts = [];
  if (images.length && images.every((image) => image.cached)) {
    facts.push(make('li', { class: 'badge', title: t('meta.cached.hint') }, t('meta.cached')));
  }
  if (first > 0) facts.push(make('li', {}, t('meta.first', { time: duration(first) })));
  if (rate > 0) facts.push(make('li', {}, t('meta.speed', { rate: rate < 10 ? rate.toFixed(1) : Math.round(rate) })));
  if (images.length === 1 && images[0].tokens) facts.push(make('li', {}, t('meta.size', images[0])));
  return facts;
}
