// Keeps the conversation on the page in the archive while it goes on, and brings it back after a refresh, a running
// answer included. Knows no element of the page.

import { put, read, remove } from './archive.js';
import { carryOn, startAnew, stop } from './asking.js';
import { Failure } from './failure.js';
import { randomId } from './ids.js';
import { pictureRecord, recordOf, revive } from './records.js';
import { state, set, watch } from './state.js';
import { failed, isOver } from './turn.js';

const TAB = 'qwenvl.conversation'; // in sessionStorage: what this tab shows
const EVERY_MS = 1000;
const PATIENCE_MS = 2000;

let written = ''; // the record as it was last put, but for its time
let keptPictures = new Set();
let timer = 0;
let lastMs = -Infinity;
let leavingUntil = 0;

/** Bring back what this tab showed before a refresh, then keep what happens. */
export async function startKeeping() {
  const patience = new Promise((resolve) => setTimeout(resolve, PATIENCE_MS, null));
  const kept = tab() && (await Promise.race([read(tab()), patience]));
  if (kept) show(kept, carryOn);
  watch(['turns', 'pictures', 'keeping'], soon);
  document.addEventListener('visibilitychange', () => document.hidden && keep());
  for (const sign of ['beforeunload', 'pagehide']) window.addEventListener(sign, keepLast);
}

/** Put the conversation away and show another one. */
export async function open(id) {
  const kept = await read(id);
  if (!kept) return;
  leave();
  show(kept, (turn) => failed(turn, new Failure('lost'))); // it was being answered in another tab
}

/** Put the conversation away; the page is as at the beginning. */
export function leave() {
  stop();
  keep();
  startAnew();
  remember(null);
}

/** Delete a conversation for good. */
export async function discard(id) {
  if (state.conversation?.id === id) {
    clearTimeout(timer);
    startAnew();
    remember(null);
  }
  await remove(id);
}

function show(kept, unfinished) {
  const { id, began } = kept.conversation;
  remember({ id, began });
  set(revive(kept));
  keptPictures = new Set(picturesNow().map(stampOf));
  written = JSON.stringify(recordOf(state, 0));
  const turn = state.turns.at(-1);
  if (turn && !isOver(turn)) unfinished(turn);
}

function remember(conversation) {
  written = '';
  keptPictures = new Set();
  set({ conversation });
  try {
    if (conversation) sessionStorage.setItem(TAB, conversation.id);
    else sessionStorage.removeItem(TAB);
  } catch {
    // without storage there is nothing to come back to
  }
}

function tab() {
  try {
    return sessionStorage.getItem(TAB);
  } catch {
    return null;
  }
}

// The first change is kept at once: a refresh may come any moment.
function soon() {
  clearTimeout(timer);
  timer = setTimeout(keep, Math.max(0, lastMs + EVERY_MS - performance.now(), leavingUntil - performance.now()));
}

// What a page sees while it goes, its uploads breaking off for one, is not what the reader left.
function keepLast() {
  keep();
  leavingUntil = performance.now() + EVERY_MS; // or the reader stays after all
}

/** Put the conversation as it is now. */
export async function keep() {
  clearTimeout(timer);
  if (performance.now() < leavingUntil) return soon();
  if (!state.turns.length || !state.keeping) return forgetEmpty();
  if (!state.conversation) remember({ id: randomId(), began: Date.now() });
  const { id } = state.conversation;
  const record = recordOf(state, 0);
  const text = JSON.stringify(record);
  if (text === written) return;
  written = text;
  lastMs = performance.now();
  if (await put({ ...record, changed: Date.now() }, newPictures(id))) return;
  written = ''; // storage is full or off; the next change tries again, with all pictures
  keptPictures = new Set();
}

// The only question was withdrawn, its picture could not be used; or the reader does not want conversations kept.
function forgetEmpty() {
  if (!state.conversation) return;
  remove(state.conversation.id);
  remember(null);
}

// A picture's file is put again only when the page knows more of it than before.
function newPictures(id) {
  const changed = picturesNow().filter((picture) => !keptPictures.has(stampOf(picture)));
  changed.forEach((picture) => keptPictures.add(stampOf(picture)));
  return changed.map((picture) => pictureRecord(picture, id));
}

const picturesNow = () => [...new Set([...state.pictures, ...state.turns.flatMap(({ pictures }) => pictures)])];

const stampOf = ({ key, id, detail, asked, seen, url }) => [key, id, detail, asked, Boolean(seen), Boolean(url)].join();
