// The page while the server is away. Fresh from the server whenever it answers; else the copy of the last visit, all of
// one version: the first two lines change with the page, and a changed worker takes a new copy.

const VERSION = {{ version|tojson }};
const FILES = {{ files|tojson }};

const NAME = `qwenvl-${VERSION}`;
const PATIENCE_MS = 4000;
const PAGE = './';
const fromCopy = new Set(); // pages that were opened from the copy: what they ask for comes from there too

self.addEventListener('install', (event) => event.waitUntil(copy()));
self.addEventListener('activate', (event) => event.waitUntil(takeOver()));
self.addEventListener('fetch', (event) => {
  const { request, clientId, resultingClientId } = event;
  if (request.method !== 'GET') return;
  if (isPage(request)) event.respondWith(page(request, resultingClientId));
  else if (isFile(request)) event.respondWith(file(request, clientId));
});

async function copy() {
  const cache = await caches.open(NAME);
  await cache.addAll([PAGE, ...FILES].map((address) => new Request(address, { cache: 'no-cache' })));
  await self.skipWaiting();
}

async function takeOver() {
  const old = (await caches.keys()).filter((name) => name.startsWith('qwenvl-') && name !== NAME);
  await Promise.all(old.map((name) => caches.delete(name)));
  await self.clients.claim();
}

const isPage = ({ mode, url }) => mode === 'navigate' && url.split(/[?#]/)[0] === self.registration.scope;
const isFile = ({ url }) => url.startsWith(new URL('static/', self.registration.scope).href);

async function page(request, client) {
  try {
    const reply = await fetch(request, { signal: AbortSignal.timeout(PATIENCE_MS) });
    if (reply.status < 500) return reply; // else a proxy speaks for a server that is away
  } catch {
    // nobody is there, or too slowly
  }
  fromCopy.add(client);
  return (await copied(PAGE)) ?? Response.error();
}

async function file(request, client) {
  if (fromCopy.has(client)) return (await copied(request)) ?? fetch(request);
  try {
    return await fetch(request);
  } catch (error) {
    const kept = await copied(request);
    if (kept) return kept;
    throw error;
  }
}

async function copied(request) {
  const cache = await caches.open(NAME);
  return cache.match(request, { ignoreSearch: true });
}
