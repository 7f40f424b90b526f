// One question and what became of it. Plain data and the few ways it changes; knows no event and no element.

import { randomId } from './ids.js';
import { touch } from './state.js';

/**
 * `shown` are the pictures that are new in this turn, `pictures` all that it asks about; `task` may be ''.
 * `earlier` will be the turns before it, as soon as it is asked; `missing` counts pictures that were removed to make room.
 */
export function newTurn({ question, task, pictures, shown, detail }) {
  return { question, task, pictures, shown, detail, temperature: null, missing: 0, text: '', earlier: [], ...blank('') };
}

/** Forget the answer, except for `base`: text that stays because the answer goes on from there. */
export function restart(turn, base = '') {
  Object.assign(turn, blank(base), { text: base });
  touch('turns');
}

function blank(base) {
  return {
    requestId: randomId(),
    phase: 'sending', // 'sending' | 'waiting' | 'writing' | 'done' | 'failed'
    base,
    sent: false, // the question has been handed to the socket
    resuming: false,
    renewals: 0, // how often the pictures were sent anew for it
    since: performance.now(),
    stage: '', // of answer_progress
    fraction: null,
    position: 0,
    eta: null,
    next: 0, // index of the next piece
    reason: '',
    failure: null,
    result: null, // answer_done
  };
}

export const isOver = (turn) => turn.phase === 'done' || turn.phase === 'failed';

export function progressed(turn, { stage, fraction, position, eta_s: eta }) {
  if (turn.phase !== 'waiting') return;
  const same = stage === turn.stage;
  const moved = typeof fraction === 'number' ? Math.min(1, Math.max(0, fraction)) : null;
  turn.fraction = same && moved !== null ? Math.max(moved, turn.fraction ?? 0) : moved;
  Object.assign(turn, { stage, position: position ?? 0, eta: eta ?? null });
  touch('turns');
}

/** Append a piece. False when it is not the next one: a repeat (ignored) or the sign of a gap. */
export function wrote(turn, index, token) {
  if (isOver(turn) || index !== turn.next) return false;
  turn.next += 1;
  turn.text += token;
  turn.phase = 'writing';
  touch('turns');
  return true;
}

export function finished(turn, reason, result = null) {
  Object.assign(turn, { phase: 'done', reason, result });
  if (typeof result?.response === 'string') turn.text = turn.base + result.response;
  result?.images?.forEach((image, at) => {
    if (turn.pictures[at]) Object.assign(turn.pictures[at], { seen: image, seenAs: turn.detail });
  });
  touch('turns', 'pictures');
}

export function failed(turn, failure) {
  Object.assign(turn, { phase: 'failed', failure });
  touch('turns');
}

/** The conversation so far as the model is told it. Questions that never got a word of answer are left out. */
export function historyOf(turns) {
  return turns
    .filter((turn) => turn.text)
    .flatMap((turn) => [
      { role: 'user', content: turn.question },
      { role: 'assistant', content: turn.text },
    ]);
}
