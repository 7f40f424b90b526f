// All that the page knows, in one place, and who wants to hear of changes.
// Knows no element, no event of the server and no word of text.

export const state = {
  language: 'en', // 'zh' | 'en'
  detail: 'balanced', // 'fast' | 'balanced' | 'fine'
  health: { status: 'unknown' }, // the body of /health, or status 'unknown' | 'gone'
  connected: false, // the socket, now
  everConnected: false,
  locked: null, // 'needed' | 'refused': the server wants a key; see key.js
  limit: null, // tokens an answer may have; null = as the server does
  temperature: null, // null = the server's
  keeping: true, // conversations are kept in this browser
  pace: null, // { machine, rates }: how fast this server reads pictures; see pace.js
  pictures: [], // what the next question is about; see pictures.js
  conversation: null, // { id, began } once it is kept; see keeper.js
  turns: [], // the conversation; see turn.js
  active: null, // the turn being answered
  shelf: [], // conversations put away while they are being answered; see shelf.js
  storage: 'fine', // 'fine' | 'full': whether this conversation could be kept
  draft: '', // words to put back into the box
};

const watchers = []; // [{ keys, tell }]
const stale = new Set();

/** Set fields and tell those who watch them. */
export function set(fields) {
  Object.assign(state, fields);
  touch(...Object.keys(fields));
}

/** Say that something inside these fields changed. Watchers hear of it once, before the next paint. */
export function touch(...keys) {
  if (!stale.size) soon(flush);
  keys.forEach((key) => stale.add(key));
}

/** Call `tell(state)` now and after each change of any of `keys`. */
export function watch(keys, tell) {
  watchers.push({ keys, tell });
  tell(state);
}

/** Resolves as soon as `test(state)` holds. */
export function until(keys, test) {
  if (test(state)) return Promise.resolve();
  return new Promise((resolve) => {
    const watcher = {
      keys,
      tell: () => {
        if (!test(state)) return;
        watchers.splice(watchers.indexOf(watcher), 1);
        resolve();
      },
    };
    watchers.push(watcher);
  });
}

function flush() {
  const keys = new Set(stale);
  stale.clear();
  for (const watcher of [...watchers]) {
    if (watcher.keys.some((key) => keys.has(key))) watcher.tell(state);
  }
}

// A hidden tab gets no animation frames, and answers must go on arriving there.
function soon(run) {
  if (document.hidden) setTimeout(run, 50);
  else requestAnimationFrame(run);
}
