// Lets the page open while the server is away: service-worker.js keeps a copy of it. Browsers allow that on https and on
// this machine only; elsewhere nothing happens.

import { until } from './state.js';

const LATER_MS = 1500; // the copy is sixty files; the first picture and question go before it

export async function startOffline() {
  if (!navigator.serviceWorker) return;
  await until(['connected'], ({ connected }) => connected);
  await new Promise((resolve) => setTimeout(resolve, LATER_MS));
  navigator.serviceWorker.register('service-worker.js').catch(() => {}); // a convenience; without it the page works
}
