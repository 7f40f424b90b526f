// When this browser has no room left: says so, makes room if the reader wants it, or saves the conversation as a file.

import { makeRoom, usage } from './archive.js';
import { notice } from './announcer.js';
import { find } from './dom.js';
import { fileName, toJson } from './export.js';
import { save } from './frames.js';
import { bytes, t } from './i18n.js';
import { picturesOf, sizeOf } from './keeper.js';
import { keep } from './keeping.js';
import { recordOf } from './records.js';
import { state, watch } from './state.js';

const SHARE = 4; // of what is kept, a quarter goes at least, or the next picture would ask again
const TRIES = 5;
const PAUSE_MS = 500;

export function startStorage() {
  watch(['storage'], ({ storage }) => (find('storage').hidden = storage !== 'full'));
  find('make-room').addEventListener('click', removeOldest);
  find('save-now').addEventListener('click', saveNow);
}

async function removeOldest() {
  const { bytes: used } = await usage();
  const wanted = Math.max(sizeOf(state), used / SHARE);
  const freed = await makeRoom(wanted, state.conversation?.id);
  await keepAgain();
  const words = { n: freed.pictures, size: bytes(freed.bytes) };
  notice(freed.pictures ? t('storage.removed', words) : t('storage.nothing'));
}

// What was removed is not free at once in every browser.
async function keepAgain() {
  for (let tries = 0; tries < TRIES; tries += 1) {
    await keep();
    if (state.storage === 'fine') return;
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

// From the page, as the archive may have nothing of it.
async function saveNow() {
  const conversation = recordOf(state, Date.now());
  save(await toJson({ conversation, pictures: picturesOf(state) }), fileName(conversation, 'json'));
}
