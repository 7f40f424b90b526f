// The pictures that the next question is about, in the composer.

import { isOfPicture } from './failure.js';
import { find, icon, label, make, say } from './dom.js';
import { meaning, t } from './i18n.js';
import { idOf, removePicture } from './pictures.js';
import { watch } from './state.js';
import { nameOf, thumbnail } from './thumbnail.js';

const shown = new Map(); // picture -> its list item

export function startTray() {
  watch(['pictures', 'language'], ({ pictures }) => {
    for (const [picture, item] of shown) if (!pictures.includes(picture)) drop(picture, item);
    for (const picture of pictures) if (!shown.has(picture)) hang(picture);
    shown.forEach((item) => item.refresh());
    find('tray').hidden = !pictures.length;
    complain(pictures.find((picture) => picture.phase === 'failed'));
  });
}

function hang(picture) {
  const thumb = thumbnail(picture);
  const remove = make('button', { type: 'button', class: 'thumb-remove' }, icon('close'));
  const retry = make('button', { type: 'button', class: 'thumb-retry', hidden: true }, icon('retry'));
  const item = make('li', { class: 'thumb' }, thumb, retry, remove);
  remove.addEventListener('click', () => removePicture(picture));
  retry.addEventListener('click', () => idOf(picture));
  item.refresh = () => {
    thumb.refresh();
    retry.hidden = picture.phase !== 'failed' || isOfPicture(picture.failure);
    label(remove, t('picture.remove', { name: nameOf(picture) }));
    label(retry, t('picture.retry', { name: nameOf(picture) }));
  };
  shown.set(picture, item);
  find('tray').append(item);
}

function drop(picture, item) {
  const hadFocus = item.contains(document.activeElement);
  item.remove();
  shown.delete(picture);
  if (hadFocus) find('question').focus();
}

function complain(picture) {
  find('tray-error').hidden = !picture;
  if (!picture) return;
  say(find('tray-error-meaning'), meaning(picture.failure.code));
  const advice = isOfPicture(picture.failure) ? t('picture.faulty') : '';
  say(find('tray-error-detail'), [picture.failure.detail, advice].filter(Boolean).join(' '));
}
