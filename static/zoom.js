// The picture at full size, in a dialog.

import { find, say } from './dom.js';
import { t } from './i18n.js';

let url = null;

export function startZoom() {
  const dialog = find('zoom');
  const image = find('zoom-image');
  image.addEventListener('load', () => {
    image.style.setProperty('--ratio', image.naturalWidth / image.naturalHeight);
  });
  dialog.addEventListener('click', (event) => {
    if (event.target === image) dialog.classList.toggle('zoom-actual');
    else if (!event.target.closest('figcaption')) dialog.close();
  });
  dialog.addEventListener('close', () => {
    image.removeAttribute('src');
    URL.revokeObjectURL(url);
  });
}

/** Show the reader's own file, not what was made of it. */
export function zoom(picture) {
  url = URL.createObjectURL(picture.file);
  find('zoom').classList.remove('zoom-actual');
  find('zoom-image').src = url;
  find('zoom-image').alt = picture.name || t('picture.untitled');
  say(find('zoom-name'), picture.name || t('picture.untitled'));
  say(find('zoom-facts'), facts(picture));
  find('zoom').showModal();
}

function facts(picture) {
  const size = t(picture.shrunk ? 'picture.shrunk' : 'picture.size', picture);
  return picture.seen?.tokens ? `${size} · ${t('picture.seen', picture.seen)}` : size;
}
