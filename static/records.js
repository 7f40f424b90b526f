// From the conversation on the page to what the archive keeps, and back. Pictures are named by their keys there.

import { Failure } from './failure.js';
import { pictureFrom } from './pictures.js';
import { newTurn } from './turn.js';

const OF_TURN = [
  'question', 'task', 'detail', 'temperature', 'text', 'base', 'requestId', 'phase', 'sent', 'stage', 'next', 'reason',
  'result', 'missing',
];
const OF_PICTURE = [
  'key', 'file', 'blob', 'name', 'width', 'height', 'sentWidth', 'sentHeight', 'shrunk', 'detail', 'id', 'asked',
  'seen', 'seenAs',
];

/** `conversation` has `id` and `began`. */
export function recordOf({ conversation, turns, pictures }, changed) {
  return {
    id: conversation.id,
    began: conversation.began,
    changed,
    turns: turns.map(turnRecord),
    tray: keysOf(pictures),
    first: turns.flatMap(({ shown }) => keysOf(shown))[0] ?? null, // the picture that stands for it in a list
  };
}

export function pictureRecord(picture, conversation) {
  const blob = picture.blob === picture.file ? null : picture.blob; // browsers would count it twice
  return { ...some(picture, OF_PICTURE), blob, conversation, decoded: Boolean(picture.url) };
}

/** `{ turns, pictures }` for the page's state. */
export function revive({ conversation, pictures }) {
  const byKey = new Map(pictures.map((record) => [record.key, pictureFrom(record)]));
  const known = (keys) => keys.map((key) => byKey.get(key)).filter(Boolean);
  const turns = conversation.turns.map((record) => {
    const fields = { ...record, pictures: known(record.pictures), shown: known(record.shown) };
    const missing = (record.missing ?? 0) + record.shown.length - fields.shown.length;
    const failure = record.failure && new Failure(record.failure.code, record.failure.detail);
    return Object.assign(newTurn(fields), some(record, OF_TURN), { failure, missing });
  });
  turns.forEach((turn, at) => (turn.earlier = turns.slice(0, at)));
  return { turns, pictures: known(conversation.tray) };
}

function turnRecord(turn) {
  const failure = turn.failure && { code: turn.failure.code, detail: turn.failure.detail };
  return { ...some(turn, OF_TURN), failure, pictures: keysOf(turn.pictures), shown: keysOf(turn.shown) };
}

const keysOf = (pictures) => pictures.map(({ key }) => key);

const some = (object, names) => Object.fromEntries(names.map((name) => [name, object[name]]));
