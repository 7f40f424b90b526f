// What the page says beside its view: to screen readers, in the tab's title, and in a short notice.
// A running answer is not read out piece by piece; its stages are, and the whole when it is complete.

import { find, say } from './dom.js';
import { meaning, t } from './i18n.js';
import { state, watch } from './state.js';

const TITLE = 'QwenVL';
const NOTICE_MS = 4000;
let announced = ''; // turn, phase and stage that were said last
let noticeTimer = 0;

export function startAnnouncer() {
  watch(['turns', 'active', 'language'], () => {
    const turn = state.turns.at(-1);
    document.title = state.active ? `${stageOf(state.active)} – ${TITLE}` : TITLE;
    if (!turn) return;
    const moment = `${turn.requestId} ${turn.phase} ${turn.stage}`;
    if (moment !== announced) say(find('announcer'), words(turn));
    announced = moment;
  });
}

/** A line that shows for some seconds. */
export function notice(text) {
  const node = find('notice');
  say(node, text);
  node.hidden = false;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => (node.hidden = true), NOTICE_MS);
}

/** The name of what is happening now, with how far it is where that is known. */
export function stageOf(turn) {
  const key = stageKey(turn);
  const known = turn.fraction !== null && (key === 'encoding' || key === 'prefill');
  return known ? `${t(`stage.${key}`)} ${Math.round(turn.fraction * 100)}%` : t(`stage.${key}`);
}

function stageKey(turn) {
  if (turn.phase === 'writing') return 'writing';
  if (!state.connected) return 'connecting';
  if (turn.phase === 'waiting') return turn.stage || 'asked';
  return state.health.status === 'loading' ? 'loading' : 'sending';
}

/** Why the answer ended, when it is not simply complete. */
export function whyOf({ reason }) {
  return reason && reason !== 'stop' ? t(`why.${reason}`) : '';
}

function words(turn) {
  if (turn.phase === 'failed') return meaning(turn.failure.code);
  if (turn.phase === 'done') return whyOf(turn) || t('announce.done', { text: turn.text });
  return t(`stage.${stageKey(turn)}`);
}
