// Which conversations this tab shows or has on its shelf, for after a refresh.

import { state } from './state.js';

const NAME = 'qwenvl.conversation'; // in sessionStorage

/** Ids: first the one on the page, or ''; then those put away. */
export function tab() {
  try {
    return (sessionStorage.getItem(NAME) ?? '').split(' ');
  } catch {
    return [''];
  }
}

export function rememberTab() {
  const ids = [state.conversation?.id ?? '', ...state.shelf.map(({ conversation }) => conversation.id)];
  try {
    sessionStorage.setItem(NAME, ids.join(' '));
  } catch {
    // without storage there is nothing to come back to
  }
}
