// Names that nobody can guess: one for the page, one for every question.

const KEY = 'qwenvl.client';

/** A random UUID. `crypto.randomUUID` exists only on https and localhost; the page is also opened by IP over http. */
export function randomId() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

/** This tab's id: the same after a refresh, so that the server can tell that it is the same reader. */
export function clientId() {
  try {
    const kept = sessionStorage.getItem(KEY) || randomId();
    sessionStorage.setItem(KEY, kept);
    return kept;
  } catch {
    return randomId();
  }
}
