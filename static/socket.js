// The connection, and the names of the events on it. Knows nothing of what the events mean.

import { clientId } from './ids.js';
import { key, lock } from './key.js';
import { set, state, watch } from './state.js';
import { io } from './vendor/socket.io.esm.min.js';

const FROM_SERVER = ['answer_progress', 'answer_token', 'answer_done', 'answer_error'];

let socket = null;

/** Connect; `on` maps `connect` and the server's event names to functions of the event's fields. */
export function startSocket(on) {
  socket = io({
    path: new URL('socket.io/', document.baseURI).pathname, // the page may live under a path of a proxy
    auth: (give) => give({ client_id: clientId(), ...(key() && { api_key: key() }) }),
    reconnectionDelay: 500,
    reconnectionDelayMax: 4000,
  });
  socket.on('connect', () => {
    set({ connected: true, everConnected: true });
    on.connect();
  });
  socket.on('connect_error', (error) => error.data?.code === 'unauthorized' && lock());
  socket.on('disconnect', (reason) => {
    set({ connected: false });
    if (reason === 'io server disconnect') socket.connect(); // the client takes that one as final
  });
  for (const event of FROM_SERVER) socket.on(event, on[event]);
  let before = state.locked;
  watch(['locked'], ({ locked }) => {
    if (before && !locked) socket.connect(); // a refused client does not try again by itself
    before = locked;
  });
  window.addEventListener('online', () => state.connected || socket.connect());
}

export const askQuestion = (fields) => send('ask_question', fields);
export const stopAnswer = (requestId) => send('stop', { request_id: requestId });
export const resumeAnswer = (requestId, fromIndex) =>
  send('resume', { request_id: requestId, from_index: fromIndex });

// Without a connection nothing is sent: the client would keep it and send it later, when it may no longer be wanted.
function send(event, fields) {
  if (state.connected) socket.emit(event, fields);
  return state.connected;
}
