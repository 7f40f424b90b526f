// Lets the page open while the server is away: service-worker.js keeps a copy of it. Browsers allow that on https and on
// this machine only; elsewhere nothing happens.

export function startOffline() {
  navigator.serviceWorker?.register('service-worker.js').catch(() => {}); // a convenience; without it the page works
}
