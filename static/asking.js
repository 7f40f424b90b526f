// The story of one question: pictures sent, question asked, pieces read, and every way in which that can end.
// One question runs at a time in a conversation; in those that were put away (shelf.js) answers go on.
// Knows no element of the page.

import { Failure, isOfPicture } from './failure.js';
import { ready, readyAgain } from './health.js';
import { t } from './i18n.js';
import { learn } from './pace.js';
import { expire, idOf } from './pictures.js';
import { set, state, touch } from './state.js';
import { askQuestion, resumeAnswer, startSocket, stopAnswer } from './socket.js';
import { failed, finished, historyOf, isOver, newTurn, progressed, restart, wrote } from './turn.js';

const RENEWALS = 1;
const LIVELY = 0.7; // without a temperature the same question has the same answer for ever
const unheardStops = new Set(); // request ids stopped while there was no connection
const asked = new Map(); // request id -> turn, until the server's last word on it

export function startAsking() {
  startSocket({
    connect: onConnect,
    answer_progress: (event) => withTurn(event, progressed),
    answer_token: (event) => withTurn(event, onToken),
    answer_done: (event) => withTurn(event, onDone),
    answer_error: (event) => withTurn(event, onError),
  });
}

/** Ask about the pictures in the tray. `task` names a ready-made question. */
export function ask(question, task = '') {
  if (state.active) return;
  const pictures = [...state.pictures];
  const shown = pictures.filter((picture) => !picture.asked);
  const turn = newTurn({ question, task, pictures, shown, detail: state.detail });
  pictures.forEach((picture) => (picture.asked = true));
  set({ turns: [...state.turns, turn] });
  touch('pictures');
  run(turn);
}

/** The same question once more, in its place; an answer that was going on goes on from where it was. */
export function askAgain(turn) {
  if (state.active) return;
  restart(turn, turn.base);
  turn.detail = state.detail;
  run(turn);
}

/** The same question in the hope of another answer. */
export function askDifferently(turn) {
  if (state.active) return;
  turn.temperature = LIVELY;
  restart(turn);
  run(turn);
}

/** Another question in this one's place. What was said after it is gone; pictures that came later wait in the tray. */
export function askInstead(turn, question) {
  if (state.active) return;
  const until = state.turns.indexOf(turn) + 1;
  state.turns.slice(until).forEach(({ shown }) => shown.forEach((picture) => (picture.asked = false)));
  restart(turn);
  Object.assign(turn, { question, task: '', detail: state.detail, temperature: null });
  set({ turns: state.turns.slice(0, until) });
  touch('pictures');
  run(turn);
}

/** Let an answer that was cut short grow on. */
export function goOn(turn) {
  if (state.active) return;
  restart(turn, turn.text);
  run(turn);
}

/** After a refresh: an answer that was asked for is read on, a question that had not been sent is asked now. */
export function carryOn(turn) {
  if (turn.sent) {
    begin(turn); // onConnect does the rest
    return;
  }
  restart(turn, turn.base);
  run(turn);
}

/** Stop an answer. The page is free at once; the server's last word on it only adds its numbers. */
export function stop(turn = state.active) {
  if (!turn || isOver(turn)) return;
  if (turn.sent && !stopAnswer(turn.requestId)) unheardStops.add(turn.requestId);
  end(turn, finished, 'cancelled');
}

async function run(turn, waitFor = ready) {
  const { requestId } = turn;
  begin(turn);
  try {
    const ids = await Promise.all(turn.pictures.map(idOf));
    await waitFor();
    if (turn.requestId !== requestId || isOver(turn)) return; // stopped meanwhile
    turn.imageIds = ids;
    turn.phase = 'waiting';
    send(turn);
  } catch (failure) {
    if (turn.requestId !== requestId || isOver(turn)) return;
    if (failure.code === 'cancelled') end(turn, finished, 'cancelled'); // its picture was taken away
    else if (isOfPicture(failure)) withdraw(turn);
    else end(turn, failed, failure);
  }
}

// From here on the server's events find the turn, also after its conversation was put away.
function begin(turn) {
  asked.set(turn.requestId, turn);
  if (!state.turns.includes(turn)) return;
  turn.earlier = state.turns.slice(0, state.turns.indexOf(turn));
  set({ active: turn });
}

// A picture cannot be used, so nothing was asked: the words go back to where they were written, and the tray says why.
function withdraw(turn) {
  if (!state.turns.includes(turn)) return end(turn, failed, turn.pictures.find((picture) => picture.failure).failure);
  asked.delete(turn.requestId);
  turn.shown.forEach((picture) => (picture.asked = false));
  set({ active: null, draft: turn.question, turns: state.turns.filter((other) => other !== turn) });
  touch('pictures');
}

// Without a connection this does nothing; onConnect tries again.
function send(turn) {
  const earlier = historyOf(turn.earlier);
  const cut = [
    { role: 'user', content: turn.question },
    { role: 'assistant', content: turn.base },
  ];
  turn.sent = askQuestion({
    request_id: turn.requestId,
    image_ids: turn.imageIds,
    question: turn.base ? t('goon.ask') : turn.question,
    history: turn.base ? [...earlier, ...cut] : earlier,
    detail: turn.detail,
    temperature: turn.temperature ?? state.temperature ?? undefined,
    max_new_tokens: limit(),
  });
  touch('turns');
}

// The server refuses more than it allows, and what it allows may have changed since the reader chose.
function limit() {
  const most = state.health.limits?.max_new_tokens_limit ?? Infinity;
  return state.limit === null ? undefined : Math.min(state.limit, most);
}

function onConnect() {
  unheardStops.forEach(stopAnswer);
  unheardStops.clear();
  for (const [requestId, turn] of asked) {
    if (turn.requestId !== requestId || isOver(turn) || turn.phase === 'sending') continue;
    if (!turn.sent) send(turn);
    else resume(turn);
  }
}

function resume(turn) {
  turn.resuming = true;
  resumeAnswer(turn.requestId, turn.next);
}

function withTurn(event, act) {
  const turn = asked.get(event.request_id);
  if (turn?.requestId === event.request_id) act(turn, event); // else it was asked anew meanwhile
}

function onToken(turn, { index, token }) {
  if (wrote(turn, index, token)) turn.resuming = false;
  else if (!isOver(turn) && index > turn.next && !turn.resuming) resume(turn);
}

function onDone(turn, event) {
  asked.delete(event.request_id);
  if (!isOver(turn)) {
    end(turn, finished, event.finish_reason, event);
    learn(turn);
  } else if (turn.reason === 'cancelled' && !turn.result) finished(turn, 'cancelled', event);
}

function onError(turn, { request_id: requestId, code, error }) {
  asked.delete(requestId);
  if (isOver(turn)) return;
  if (turn.resuming && code === 'invalid_request') return onLost(turn);
  if (code === 'unknown_image' && turn.renewals < RENEWALS) return renewPictures(turn);
  if (code === 'loading') return renew(turn, readyAgain);
  return end(turn, failed, new Failure(code, error));
}

// The server restarted and knows nothing of the question. If nothing was read yet, asking again is all it takes.
function onLost(turn) {
  if (turn.next === 0) renew(turn);
  else end(turn, failed, new Failure('lost'));
}

function renewPictures(turn) {
  const renewals = turn.renewals + 1;
  expire(turn.pictures);
  renew(turn);
  turn.renewals = renewals;
}

function renew(turn, waitFor) {
  restart(turn, turn.base);
  run(turn, waitFor);
}

function end(turn, how, ...details) {
  how(turn, ...details);
  if (!turn.sent || how === failed) asked.delete(turn.requestId);
  if (state.active === turn) set({ active: null });
}
