// The pictures that the next question is about: taken in, shrunk, sent, and sent again when the server lost them.
// Knows no element of the page.

import { Failure } from './failure.js';
import { readyAgain } from './health.js';
import { randomId } from './ids.js';
import { lock, unlocked } from './key.js';
import { isFiner, shrink } from './shrink.js';
import { set, state, touch, watch } from './state.js';
import { forget, upload } from './upload.js';

const MAX_PIXELS = 50_000_000; // until the server has said its own

let shrinking = Promise.resolve(); // one at a time: a decoded phone photo takes 50 MB

/** Add files as pictures and start sending them. Returns how many were too many for one question. */
export function addPictures(files) {
  const room = (state.health.limits?.max_images ?? Infinity) - state.pictures.length;
  const added = Array.from(files).slice(0, Math.max(0, room)).map(newPicture);
  set({ pictures: [...state.pictures, ...added] });
  added.forEach(idOf);
  return files.length - added.length;
}

/** Take a picture out of the next question; the server forgets it. */
export function removePicture(picture) {
  picture.cancel.abort();
  if (picture.id) forget(picture.id);
  set({ pictures: state.pictures.filter((other) => other !== picture) });
  picture.id = null;
  picture.job = null;
  if (!picture.asked && picture.url) URL.revokeObjectURL(picture.url);
}

/** A conversation leaves the page: nothing more is sent of its pictures, and their memory is free. */
export function release({ turns, pictures }) {
  for (const picture of new Set([...pictures, ...turns.flatMap((turn) => turn.pictures)])) {
    picture.cancel.abort();
    if (picture.url) URL.revokeObjectURL(picture.url);
  }
}

/** Resolves to the server's id for the picture, at least as fine as the chosen detail; sends it if need be. */
export function idOf(picture) {
  if (!picture.job || isTooCoarse(picture)) {
    picture.job = bring(picture);
    picture.job.catch(() => {}); // shown on the picture; whoever asks hears of it too
  }
  return picture.job;
}

/** The server no longer knows these: the next `idOf` sends them anew. */
export function expire(pictures) {
  for (const picture of pictures) Object.assign(picture, { job: null, id: null });
}

export function startPictures() {
  watch(['detail'], () => state.pictures.filter(isTooCoarse).forEach(idOf));
}

function newPicture(file) {
  return {
    key: randomId(), // names it in the archive
    file,
    blob: null, // what was made of it for sending
    name: file.name || '',
    url: null, // what the page shows; null until decoded, or for ever if it cannot be
    width: 0,
    height: 0,
    sentWidth: 0,
    sentHeight: 0,
    shrunk: false,
    detail: state.detail, // it was shrunk for this one
    phase: 'preparing', // 'preparing' | 'sending' | 'ready' | 'failed'
    fraction: 0,
    failure: null,
    id: null,
    job: null,
    asked: false, // appears in the conversation
    seen: null, // { width, height, tokens, cached } of the last answer
    seenAs: '', // the detail it was read with then
    cancel: new AbortController(),
  };
}

/** A picture from the archive. The server may still know it; if not, it is sent anew when it is asked about. */
export function pictureFrom({ decoded, conversation, ...record }) {
  const url = decoded ? URL.createObjectURL(record.blob ?? record.file) : null;
  const job = record.id ? Promise.resolve(record.id) : null;
  return { ...newPicture(record.file), ...record, url, job, phase: 'ready' };
}

function isTooCoarse(picture) {
  return picture.phase === 'ready' && picture.shrunk && isFiner(state.detail, picture.detail);
}

async function bring(picture) {
  if (picture.cancel.signal.aborted) picture.cancel = new AbortController();
  become(picture, { phase: 'preparing', fraction: 0, failure: null, detail: state.detail });
  try {
    await prepare(picture);
    become(picture, { phase: 'sending' });
    const { id } = await sent(picture);
    become(picture, { phase: 'ready', id });
    return isTooCoarse(picture) ? bring(picture) : id; // the detail was changed on the way
  } catch (error) {
    const failure = error instanceof Failure ? error : new Failure('invalid_image');
    become(picture, { phase: 'failed', failure, job: null });
    throw failure;
  }
}

async function prepare(picture) {
  const maxPixels = state.health.limits?.max_image_pixels ?? MAX_PIXELS;
  const turn = shrinking.then(() => shrink(picture.file, picture.detail, maxPixels));
  shrinking = turn.catch(() => {});
  const { decoded, ...result } = await turn;
  const old = picture.url;
  become(picture, { ...result, url: decoded ? URL.createObjectURL(result.blob) : null });
  if (old) URL.revokeObjectURL(old);
}

async function sent(picture) {
  const { signal } = picture.cancel;
  if (signal.aborted) throw new Failure('cancelled');
  try {
    const onFraction = (fraction) => become(picture, { fraction });
    return await upload(picture.blob, picture.name || 'picture', { onFraction, signal });
  } catch (failure) {
    if (failure.code === 'loading') await readyAgain();
    else if (failure.code === 'unauthorized') await unlockedAgain();
    else throw failure;
    return sent(picture);
  }
}

function unlockedAgain() {
  lock();
  return unlocked();
}

function become(picture, fields) {
  Object.assign(picture, fields);
  touch('pictures', 'turns');
}
