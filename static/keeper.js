// Puts one conversation into the archive as it grows, and knows what of it is there already.
// A talk is `{ conversation, turns, pictures }`; `conversation` is `{ id, began }` and this module's notes.

import { bytesOf, put } from './archive.js';
import { randomId } from './ids.js';
import { pictureRecord, recordOf } from './records.js';

/** A conversation that nothing is kept of yet. */
export const newConversation = () => ({ id: randomId(), began: Date.now(), written: '', stamps: new Set(), busy: null, gone: false });

/** One that was just read from the archive into `talk`. */
export function fromArchive({ id, began }, { turns, pictures }) {
  const conversation = { id, began, written: '', stamps: new Set(), busy: null, gone: false };
  const talk = { conversation, turns, pictures };
  conversation.stamps = new Set(picturesOf(talk).map(stampOf));
  conversation.written = JSON.stringify(recordOf(talk, 0));
  return conversation;
}

/** Resolves to 'same' | 'kept' | 'full' | 'off'. */
export async function keepTalk(talk) {
  const { conversation } = talk;
  if (conversation.gone) return 'same';
  if (conversation.busy) {
    await conversation.busy; // what it could not keep is tried again
    return keepTalk(talk);
  }
  conversation.busy = putTalk(talk);
  try {
    return await conversation.busy;
  } finally {
    conversation.busy = null;
  }
}

async function putTalk(talk) {
  const { conversation } = talk;
  const record = recordOf(talk, 0);
  const text = JSON.stringify(record);
  if (text === conversation.written) return 'same';
  conversation.written = text;
  const whole = { ...record, changed: Date.now() };
  const outcome = await put(whole, newPictures(talk));
  if (outcome === 'kept') return outcome;
  conversation.written = ''; // the next change tries again, with all pictures
  conversation.stamps = new Set();
  return outcome;
}

/** All pictures of a conversation, each once. */
export const picturesOf = ({ turns, pictures }) => [...new Set([...pictures, ...turns.flatMap((turn) => turn.pictures)])];

/** Bytes that the pictures of a talk take in the archive. */
export const sizeOf = (talk) => picturesOf(talk).reduce((sum, picture) => sum + bytesOf(picture), 0);

// A picture's file is put again only when the page knows more of it than before.
function newPictures(talk) {
  const { id, stamps } = talk.conversation;
  const changed = picturesOf(talk).filter((picture) => !stamps.has(stampOf(picture)));
  changed.forEach((picture) => stamps.add(stampOf(picture)));
  return changed.map((picture) => pictureRecord(picture, id));
}

const stampOf = ({ key, id, detail, asked, seen, url }) => [key, id, detail, asked, Boolean(seen), Boolean(url)].join();
