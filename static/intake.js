// The ways in for pictures: dropped anywhere, pasted anywhere, chosen, taken with the camera.

import { notice } from './announcer.js';
import { find } from './dom.js';
import { t } from './i18n.js';
import { isPdf, pagesOf } from './pdf-pages.js';
import { addPictures } from './pictures.js';
import { state } from './state.js';

export function startIntake() {
  for (const [button, input] of [['add', 'files'], ['dropzone', 'files'], ['camera', 'photo']]) {
    find(button).addEventListener('click', () => find(input).click());
  }
  for (const input of [find('files'), find('photo')]) input.addEventListener('change', takeChosen);
  document.addEventListener('paste', takePasted);
  startDrop();
}

async function take(files) {
  const pictures = files.filter((file) => !isPdf(file));
  if (pictures.length) add(pictures);
  for (const pdf of files.filter(isPdf)) {
    const pages = await pagesOf(pdf);
    if (pages.length) add(pages);
  }
}

function add(files) {
  const tooMany = addPictures(files);
  if (tooMany) notice(t('add.toomany', { most: state.health.limits.max_images }));
  find('question').focus({ preventScroll: true });
}

function takeChosen(event) {
  take([...event.target.files]);
  event.target.value = ''; // so that the same file can be chosen again
}

// Spreadsheets put a picture of the text beside the text; who pastes into the question wants the text.
function takePasted(event) {
  const files = [...event.clipboardData.files];
  const text = event.clipboardData.getData('text/plain');
  if (!files.length || (text && event.target === find('question'))) return;
  event.preventDefault();
  take(files);
}

function startDrop() {
  const veil = find('veil');
  let depth = 0; // dragenter and dragleave come for every element under the pointer
  const settle = (change) => {
    depth = change ? Math.max(0, depth + change) : 0;
    veil.hidden = !depth;
  };
  document.addEventListener('dragenter', (event) => isFileDrag(event) && settle(1));
  document.addEventListener('dragleave', (event) => isFileDrag(event) && settle(-1));
  document.addEventListener('dragover', (event) => {
    if (isTextDrag(event)) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = isFileDrag(event) ? 'copy' : 'none';
  });
  document.addEventListener('drop', (event) => {
    settle(0);
    if (isTextDrag(event)) return;
    event.preventDefault(); // or the browser leaves the page to show the file
    if (event.dataTransfer.files.length) take([...event.dataTransfer.files]);
    else notice(t('drop.nofile'));
  });
}

const isFileDrag = (event) => event.dataTransfer.types.includes('Files');

// Text dragged into the question stays the browser's business.
const isTextDrag = (event) => !isFileDrag(event) && event.target === find('question');
