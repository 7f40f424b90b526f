// Asks the reader for the server's key, for as long as the server wants one.

import { find, say } from './dom.js';
import { t } from './i18n.js';
import { useKey } from './key.js';
import { state, watch } from './state.js';

export function startKeyhole() {
  const dialog = find('keyhole');
  const input = find('key');
  // Without a key nothing on the page works, so the question comes back when it is closed.
  dialog.addEventListener('close', () => state.locked && dialog.showModal());
  find('keyhole-form').addEventListener('submit', (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (text) useKey(text);
  });
  watch(['locked', 'language'], ({ locked }) => {
    find('key-refused').hidden = locked !== 'refused';
    say(find('key-refused'), locked === 'refused' ? t('key.refused') : '');
    if (locked && !dialog.open) dialog.showModal();
    if (!locked) dialog.close();
  });
}
