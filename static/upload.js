// Pictures to the server and away again, by HTTP: sockets drop large messages without a word.

import { Failure, failureOf } from './failure.js';
import { keyHeaders } from './key.js';

/**
 * POST one picture. Resolves to the server's `{ id, width, height }`; rejects with a Failure.
 * fetch() cannot tell how much has been sent; XMLHttpRequest can.
 */
export function upload(blob, name, { onFraction, signal }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const form = new FormData();
    form.append('image', blob, name);
    request.upload.onprogress = (event) => event.lengthComputable && onFraction(event.loaded / event.total);
    request.onload = () => {
      try {
        if (request.status >= 300) throw failureOf(request.status, request.responseText);
        resolve(JSON.parse(request.responseText));
      } catch (error) {
        reject(error instanceof Failure ? error : new Failure('internal'));
      }
    };
    request.onerror = () => reject(new Failure('network'));
    request.onabort = () => reject(new Failure('cancelled'));
    signal.addEventListener('abort', () => request.abort());
    request.open('POST', 'images');
    Object.entries(keyHeaders()).forEach(([name, value]) => request.setRequestHeader(name, value));
    request.send(form);
  });
}

/** Ask the server to forget a picture. Whether it heard makes no difference here: it forgets by itself in time. */
export function forget(id) {
  const request = { method: 'DELETE', keepalive: true, headers: keyHeaders() };
  fetch(`images/${encodeURIComponent(id)}`, request).catch(() => {});
}
