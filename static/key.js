// The key that this server may want, kept in this browser. Knows no element of the page.

import { set, state, until } from './state.js';

const NAME = 'qwenvl.key';
let kept = null; // where storage is switched off, the key lasts as long as the page

/** The key, or null. */
export function key() {
  try {
    return localStorage.getItem(NAME) ?? kept;
  } catch {
    return kept;
  }
}

/** What a request needs in order to be let in. */
export const keyHeaders = () => (key() ? { Authorization: `Bearer ${key()}` } : {});

/** The server has turned us away: the reader is asked for a key. */
export function lock() {
  set({ locked: key() ? 'refused' : 'needed' });
}

/** Resolves when there is a key to try. */
export const unlocked = () => until(['locked'], () => !state.locked);

/** Keep a key and try again with it. */
export function useKey(text) {
  kept = text;
  try {
    localStorage.setItem(NAME, text);
  } catch {
    // see `kept`
  }
  set({ locked: null });
}
