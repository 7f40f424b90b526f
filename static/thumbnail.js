// A small picture that opens large when clicked, and how its sending goes. Used by the tray and by the conversation.

import { icon, label, make } from './dom.js';
import { meaning, t } from './i18n.js';
import { zoom } from './zoom.js';

export const nameOf = (picture) => picture.name || t('picture.untitled');

/** A node with a method `refresh()`. */
export function thumbnail(picture) {
  const image = make('img', { alt: '', draggable: 'false' });
  const stand = make('span', { class: 'thumb-stand' }, icon('file'), make('span', { class: 'thumb-name' }));
  const ring = make('span', { class: 'thumb-ring' });
  const open = make('button', { type: 'button', class: 'thumb-open' }, image, stand, ring);
  open.addEventListener('click', () => picture.url && zoom(picture));
  open.refresh = () => refresh(picture, { open, image, stand, ring });
  open.refresh();
  return open;
}

function refresh(picture, { open, image, stand, ring }) {
  const busy = picture.phase === 'preparing' || picture.phase === 'sending';
  image.hidden = !picture.url;
  if (picture.url && image.src !== picture.url) image.src = picture.url;
  stand.hidden = Boolean(picture.url) || picture.phase === 'preparing';
  stand.lastChild.textContent = nameOf(picture);
  ring.hidden = !busy;
  ring.style.setProperty('--turn', `${Math.round(picture.fraction * 360)}deg`);
  open.classList.toggle('thumb-failed', picture.phase === 'failed');
  label(open, labelOf(picture, busy));
}

function labelOf(picture, busy) {
  const name = nameOf(picture);
  if (picture.phase === 'failed') return `${name}: ${meaning(picture.failure.code)}`;
  return t(busy ? 'picture.uploading' : 'picture.zoom', { name });
}
