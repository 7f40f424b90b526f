// Keeps the conversation on the page in the archive while it goes on, and those put away that are still being answered;
// brings them back after a refresh. Knows no element of the page.

import { notice } from './announcer.js';
import { read, remove, stay } from './archive.js';
import { carryOn, stop } from './asking.js';
import { titleOf } from './export.js';
import { Failure } from './failure.js';
import { t } from './i18n.js';
import { fromArchive, keepTalk, newConversation } from './keeper.js';
import { release } from './pictures.js';
import { revive } from './records.js';
import { keepShelf, runningIn, shelve, talkOnShelf, unshelve } from './shelf.js';
import { state, set, watch } from './state.js';
import { rememberTab, tab } from './tab.js';
import { failed } from './turn.js';

const EVERY_MS = 1000;
const PATIENCE_MS = 2000;

let timer = 0;
let lastMs = -Infinity;
let leavingUntil = 0;

/** Bring back what this tab showed before a refresh, then keep what happens. */
export async function startKeeping() {
  const patience = new Promise((resolve) => setTimeout(resolve, PATIENCE_MS, null));
  const [shown, ...shelved] = await Promise.all(tab().map((id) => id && Promise.race([read(id), patience])));
  if (shown) show(revived(shown), carryOn);
  for (const kept of shelved.filter(Boolean)) {
    const talk = revived(kept);
    shelve(talk);
    if (runningIn(talk)) carryOn(runningIn(talk));
  }
  watch(['turns', 'pictures', 'keeping', 'shelf'], soon);
  watch(['conversation', 'shelf'], rememberTab);
  document.addEventListener('visibilitychange', () => document.hidden && keep());
  for (const sign of ['beforeunload', 'pagehide']) window.addEventListener(sign, keepLast);
}

/** Put the conversation away and show another one. */
export async function open(id) {
  const shelved = talkOnShelf(id);
  const talk = shelved ?? revived(await read(id));
  if (!talk) return;
  leave();
  if (shelved) unshelve(shelved);
  show(talk, shelved ? (active) => set({ active }) : (turn) => failed(turn, new Failure('lost'))); // in another tab
}

/** Put the conversation away; the page is as at the beginning. A running answer goes on if it can be found again. */
export function leave() {
  const talk = shownTalk();
  if (runningIn(talk) && state.keeping) {
    talk.conversation ??= newConversation();
    shelve(talk);
  } else {
    stop();
    keep();
    release(talk);
  }
  clear();
}

/** Delete a conversation for good. */
export async function discard(id) {
  const shelved = talkOnShelf(id);
  const talk = shelved ?? (state.conversation?.id === id && shownTalk());
  const running = talk && runningIn(talk);
  if (running) stop(running);
  if (shelved) unshelve(shelved);
  else if (talk) clear();
  if (talk) release(talk);
  await forget(talk ? talk.conversation : { id });
}

/** Put everything into the archive as it is now. */
export async function keep() {
  clearTimeout(timer);
  if (performance.now() < leavingUntil) return soon();
  const ended = keepShelf();
  await keepShown();
  for (const talk of await ended) notice(t('shelf.ended', { title: titleOf(talk) }));
}

const shownTalk = ({ conversation, turns, pictures } = state) => ({ conversation, turns, pictures });

function clear() {
  clearTimeout(timer);
  lastMs = -Infinity; // what comes next is another conversation, whose first change is kept at once
  set({ turns: [], pictures: [], active: null, conversation: null, storage: 'fine' });
}

function show(talk, unfinished) {
  set({ ...talk, active: null, storage: 'fine' });
  const running = runningIn(talk);
  if (running) unfinished(running);
}

function revived(kept) {
  if (!kept) return null;
  const talk = revive(kept);
  return { conversation: fromArchive(kept.conversation, talk), ...talk };
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

async function keepShown() {
  if (!state.turns.length || !state.keeping) return forgetEmpty();
  if (!state.conversation) set({ conversation: newConversation() });
  rememberTab(); // now: the page may be on its way out
  const { conversation } = state;
  const before = conversation.written;
  const keeping = keepTalk(shownTalk());
  if (conversation.written !== before) lastMs = performance.now();
  const outcome = await keeping;
  if (conversation !== state.conversation || outcome === 'same') return;
  set({ storage: outcome === 'full' ? 'full' : 'fine' });
  if (outcome === 'kept') stay();
}

// The only question was withdrawn, its picture could not be used; or the reader does not want conversations kept.
function forgetEmpty() {
  if (!state.conversation) return;
  forget(state.conversation);
  set({ conversation: null, storage: 'fine' });
}

// A put that is still waiting must not bring it back.
function forget(conversation) {
  conversation.gone = true;
  return remove(conversation.id);
}
