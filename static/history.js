// The conversations of this browser in a dialog: find one, open it again, save it as a file, delete it.

import { list, read, readPicture } from './archive.js';
import { find, icon, make, say } from './dom.js';
import { fileName, titleOf, toJson, toMarkdown } from './export.js';
import { save } from './frames.js';
import { labelled, t } from './i18n.js';
import { discard, keep, open } from './keeping.js';
import { talkOnShelf } from './shelf.js';
import { state, watch } from './state.js';

const SURE_MS = 5000;
let kept = []; // records, the latest first
let urls = []; // of the small pictures, until the dialog closes

export function startHistory() {
  const dialog = find('history');
  const search = find('history-search');
  find('history-open').addEventListener('click', async () => {
    await keep();
    kept = await list();
    search.value = '';
    draw();
    dialog.showModal();
  });
  search.addEventListener('input', draw);
  dialog.addEventListener('click', (event) => event.target === dialog && dialog.close());
  dialog.addEventListener('close', () => {
    urls.forEach((url) => URL.revokeObjectURL(url));
    urls = [];
    find('history-list').replaceChildren();
  });
  watch(['shelf'], ({ shelf }) => find('history-open').toggleAttribute('data-running', Boolean(shelf.length)));
  watch(['language'], () => {
    find('history-search').placeholder = t('history.search');
    if (dialog.open) draw();
  });
}

function draw() {
  const words = find('history-search').value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = kept.filter((conversation) => words.every((word) => textOf(conversation).includes(word)));
  find('history-list').replaceChildren(...found.map(entry));
  find('history-none').hidden = Boolean(found.length);
  say(find('history-none'), t(kept.length ? 'history.notfound' : 'history.none'));
}

const textOf = (conversation) =>
  [titleOf(conversation), ...conversation.turns.flatMap(({ question, text }) => [question, text])]
    .join('\n')
    .toLowerCase();

function entry(conversation) {
  const image = make('img', { alt: '', hidden: true });
  const title = make('span', { class: 'history-title', dir: 'auto' }, titleOf(conversation));
  const facts = make('span', { class: 'history-facts' }, factsOf(conversation));
  const picture = make('span', { class: 'history-picture' }, icon('picture'), image);
  const show = make('button', { type: 'button', class: 'history-show' }, picture, make('span', {}, title, facts));
  show.addEventListener('click', () => {
    find('history').close();
    if (state.conversation?.id !== conversation.id) open(conversation.id);
  });
  if (conversation.first) showPicture(image, conversation.first);
  const item = make('li', { class: 'history-entry' }, show, ...saveButtons(conversation));
  item.append(deleteButton(conversation));
  item.toggleAttribute('data-current', state.conversation?.id === conversation.id);
  return item;
}

function factsOf({ id, changed, turns }) {
  const when = { dateStyle: 'short', timeStyle: 'short' };
  return [
    new Date(changed).toLocaleString(document.documentElement.lang, when),
    t('history.turns', { n: turns.length }),
    talkOnShelf(id) ? t('history.running') : '',
  ].filter(Boolean).join(' · ');
}

async function showPicture(image, key) {
  const record = await readPicture(key);
  if (!record?.decoded || !image.isConnected) return;
  urls.push(URL.createObjectURL(record.blob ?? record.file));
  image.src = urls.at(-1);
  image.hidden = false;
}

function saveButtons({ id }) {
  return [['md', toMarkdown], ['json', toJson]].map(([extension, write]) => {
    const button = make('button', { type: 'button', class: 'quiet history-save' }, extension);
    labelled(button, `history.save.${extension}`);
    button.addEventListener('click', async () => {
      const whole = await read(id);
      if (whole) save(await write(whole), fileName(whole.conversation, extension));
    });
    return button;
  });
}

// Asked twice in the same place: there is no way back.
function deleteButton({ id }) {
  const button = make('button', { type: 'button', class: 'quiet' }, icon('delete'));
  labelled(button, 'history.delete');
  button.addEventListener('click', async () => {
    if (!button.classList.contains('sure')) return ask(button);
    await discard(id);
    kept = kept.filter((other) => other.id !== id);
    draw();
    find('history-search').focus();
  });
  return button;
}

function ask(button) {
  button.classList.add('sure');
  button.replaceChildren(t('history.sure'));
  labelled(button, 'history.sure');
  setTimeout(() => {
    button.classList.remove('sure');
    button.replaceChildren(icon('delete'));
    labelled(button, 'history.delete');
  }, SURE_MS);
}
