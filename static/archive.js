// The conversations of this browser, in its own database; no server sees it. Records only: knows no state and no
// element. Where storage is switched off, nothing is kept and nothing fails.

import { openDB } from './vendor/idb.js';

const NAME = 'qwenvl';
const SEVERAL = 2; // conversations show that somebody comes back
let opening = null;
let asked = false;

/**
 * Put a conversation, and those of its pictures that are not there yet: words by themselves, as they may be all that
 * fits. Resolves to 'kept', to 'full' when not all of it is, or to 'off'.
 */
export function put(conversation, pictures) {
  let opened = false; // a full disk has several names: QuotaExceededError, UnknownError, AbortError
  return attempt(() => (opened ? 'full' : 'off'), async (database) => {
    opened = true;
    const changes = [store(database, 'conversations', [conversation])];
    if (pictures.length) changes.push(store(database, 'pictures', pictures));
    await Promise.allSettled(changes);
    await Promise.all(changes);
    return 'kept';
  });
}

function store(database, name, records) {
  const change = database.transaction(name, 'readwrite');
  return Promise.all([...records.map((record) => change.store.put(record)), change.done]);
}

/** All conversations, the latest first. */
export function list() {
  return attempt([], async (database) => {
    const all = await database.getAll('conversations');
    return all.sort((a, b) => b.changed - a.changed);
  });
}

/** `{ conversation, pictures }`, or null. */
export function read(id) {
  return attempt(null, async (database) => {
    const conversation = await database.get('conversations', id);
    return conversation ? { conversation, pictures: await picturesOf(database, id) } : null;
  });
}

/** One picture's record, or undefined. */
export const readPicture = (key) => attempt(undefined, (database) => database.get('pictures', key));

/** Delete a conversation and its pictures. */
export function remove(id) {
  return attempt(false, async (database) => {
    const change = database.transaction(['conversations', 'pictures'], 'readwrite');
    change.objectStore('conversations').delete(id);
    const keys = await change.objectStore('pictures').index('conversation').getAllKeys(id);
    keys.forEach((key) => change.objectStore('pictures').delete(key));
    await change.done;
    return true;
  });
}

/** Bytes of a picture's record: the reader's file, and what was made of it. */
export const bytesOf = ({ file, blob }) => (file?.size ?? 0) + (blob && blob !== file ? blob.size : 0);

/** What is kept: `{ conversations, pictures, bytes }`. */
export function usage() {
  return attempt({ conversations: 0, pictures: 0, bytes: 0 }, async (database) => {
    const [conversations, pictures] = await Promise.all([database.count('conversations'), database.getAll('pictures')]);
    return { conversations, pictures: pictures.length, bytes: pictures.reduce((sum, one) => sum + bytesOf(one), 0) };
  });
}

/** Delete pictures of the oldest conversations until `wanted` bytes are free; `spared` is the id of one that keeps its. */
export function makeRoom(wanted, spared) {
  return attempt({ pictures: 0, bytes: 0 }, async (database) => {
    const all = await database.getAll('conversations');
    const freed = { pictures: 0, bytes: 0 };
    for (const { id } of all.sort((a, b) => a.changed - b.changed)) {
      if (freed.bytes >= wanted) break;
      for (const picture of id === spared ? [] : await picturesOf(database, id)) {
        await database.delete('pictures', picture.key);
        freed.pictures += 1;
        freed.bytes += bytesOf(picture);
      }
    }
    return freed;
  });
}

/** Ask the browser not to throw this away when the disk gets full. Some ask the reader, so once, and not at first. */
export async function stay() {
  if (asked || !navigator.storage?.persist || (await usage()).conversations < SEVERAL) return;
  asked = true;
  if (!(await navigator.storage.persisted())) await navigator.storage.persist().catch(() => {});
}

const picturesOf = (database, id) => database.getAllFromIndex('pictures', 'conversation', id);

async function attempt(otherwise, act) {
  try {
    opening ??= openDB(NAME, 1, { upgrade });
    return await act(await opening);
  } catch {
    return typeof otherwise === 'function' ? otherwise() : otherwise;
  }
}

function upgrade(database) {
  database.createObjectStore('conversations', { keyPath: 'id' });
  database.createObjectStore('pictures', { keyPath: 'key' }).createIndex('conversation', 'conversation');
}
