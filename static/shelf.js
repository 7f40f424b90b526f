// Conversations that were put away while they are being answered. The answer goes on; what it says is kept, and who
// comes back finds it. Knows no element of the page.

import { keepTalk } from './keeper.js';
import { release } from './pictures.js';
import { set, state } from './state.js';
import { isOver } from './turn.js';

/** The turn of a talk that is being answered, or undefined. */
export const runningIn = ({ turns }) => turns.find((turn) => !isOver(turn));

export const talkOnShelf = (id) => state.shelf.find(({ conversation }) => conversation.id === id);

export function shelve(talk) {
  set({ shelf: [...state.shelf, talk] });
}

/** Take a talk off the shelf; its pictures are the caller's from now on. */
export function unshelve(talk) {
  set({ shelf: state.shelf.filter((other) => other !== talk) });
}

/** Keep what has come. Talks whose answer has ended leave the shelf; resolves to them. */
export async function keepShelf() {
  const ended = state.shelf.filter((talk) => !runningIn(talk));
  await Promise.all(state.shelf.map(keepTalk));
  const left = ended.filter((talk) => state.shelf.includes(talk)); // the reader may have come back meanwhile
  left.forEach(unshelve);
  left.forEach(release);
  return left;
}
