// A button that copies, and says for a moment whether it worked.

import { copyText } from './clipboard.js';
import { icon, make } from './dom.js';
import { labelled } from './i18n.js';

const COPIED_MS = 2000;

/** `text()` is what is copied; `name` is the key of the button's words. */
export function copyButton(text, name) {
  const button = make('button', { type: 'button', class: 'quiet' }, icon('copy'));
  labelled(button, name);
  button.addEventListener('click', async () => {
    const worked = await copyText(text());
    button.replaceChildren(icon(worked ? 'check' : 'alert'));
    labelled(button, worked ? 'copied' : 'copy.failed');
    setTimeout(() => {
      button.replaceChildren(icon('copy'));
      labelled(button, name);
    }, COPIED_MS);
  });
  return button;
}
