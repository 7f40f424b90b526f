// Where the question is written: the box, its keys, send and stop, and the questions ready-made.

import { ask, stop } from './asking.js';
import { find } from './dom.js';
import { isComposing, isSendKey } from './enter.js';
import { isOfPicture } from './failure.js';
import { t } from './i18n.js';
import { leave } from './keeping.js';
import { state, watch } from './state.js';

const fine = matchMedia('(pointer: fine)');

export function startComposer() {
  const question = find('question');
  find('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    submit(question);
  });
  question.addEventListener('input', () => refresh(question));
  question.addEventListener('keydown', (event) => sendOnEnter(event, question));
  document.addEventListener('keydown', (event) => onPageKey(event, question));
  find('stop').addEventListener('click', () => stopAndReturn(question));
  find('new').addEventListener('click', () => {
    leave();
    question.value = '';
    refresh(question);
    focus(question);
  });
  for (const preset of document.querySelectorAll('[data-preset]')) {
    const task = preset.dataset.preset;
    preset.addEventListener('click', () => send(t(`preset.${task}.ask`), task));
  }
  watch(['draft'], ({ draft }) => {
    if (!draft) return;
    question.value ||= draft;
    state.draft = '';
  });
  watch(['pictures', 'turns', 'active', 'language'], () => refresh(question));
  focus(question);
}

function submit(question) {
  const text = question.value.trim();
  if (state.active || !canSend(text)) return;
  question.value = '';
  send(text || t('question.default'));
  if (!fine.matches) question.blur(); // the phone's keyboard would cover the answer
}

function canSend(text) {
  return Boolean(text || state.pictures.length) && !state.pictures.some((picture) => isOfPicture(picture.failure));
}

function send(text, task = '') {
  ask(text, task);
  refresh(find('question'));
}

function sendOnEnter(event, question) {
  if (!isSendKey(event)) return;
  event.preventDefault();
  submit(question);
}

function onPageKey(event, question) {
  if (isComposing(event) || document.querySelector('dialog[open]')) return;
  if (event.key === 'Escape' && state.active) stopAndReturn(question);
  const typing = event.target.closest?.('input, textarea, select');
  if (event.key !== '/' || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  question.focus();
}

function stopAndReturn(question) {
  stop();
  focus(question);
}

// On a phone, focus brings the keyboard up; there it is the reader who asks for it.
function focus(question) {
  if (fine.matches) question.focus({ preventScroll: true });
}

function refresh(question) {
  const { pictures, turns, active } = state;
  const busy = Boolean(active);
  const empty = !question.value.trim();
  const fresh = pictures.some((picture) => !picture.asked);
  find('stop').hidden = !busy;
  find('send').hidden = busy;
  find('send').disabled = !canSend(question.value.trim());
  find('presets').hidden = busy || !empty || !canSend('');
  find('presets').dataset.fresh = fresh;
  find('dropzone').hidden = Boolean(turns.length || pictures.length);
  find('new').hidden = !turns.length && !pictures.length;
  question.placeholder = t(pictures.length ? (fresh ? 'question.first' : 'question.next') : 'question.none');
  grow(question);
}

function grow(question) {
  question.style.height = 'auto';
  question.style.height = `${question.scrollHeight}px`;
}
