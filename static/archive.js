// The conversations of this browser, in its own database; no server sees it. Records only: knows no state and no
// element. Where storage is switched off or full, nothing is kept and nothing fails.

import { openDB } from './vendor/idb.js';

const NAME = 'qwenvl';
let opening = null;

/** Put a conversation, and those of its pictures that are not there yet. Resolves to whether it is kept. */
export function put(conversation, pictures) {
  return attempt(false, async (database) => {
    const change = database.transaction(['conversations', 'pictures'], 'readwrite');
    change.objectStore('conversations').put(conversation);
    pictures.forEach((picture) => change.objectStore('pictures').put(picture));
    await change.done;
    return true;
  });
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

const picturesOf = (database, id) => database.getAllFromIndex('pictures', 'conversation', id);

async function attempt(otherwise, act) {
  try {
    opening ??= openDB(NAME, 1, { upgrade });
    return await act(await opening);
  } catch {
    return otherwise;
  }
}

function upgrade(database) {
  database.createObjectStore('conversations', { keyPath: 'id' });
  database.createObjectStore('pictures', { keyPath: 'key' }).createIndex('conversation', 'conversation');
}
