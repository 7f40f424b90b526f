// How the server is: asks /health while it loads or cannot be reached, and whenever the connection changes.

import { Failure } from './failure.js';
import { set, state, until, watch } from './state.js';

const LOADING_MS = 1000;
const GONE_MS = 3000;
const PATIENCE_MS = 8000;
let timer = 0;

/** Resolves when the model can answer; rejects with a Failure if it could not be loaded. */
export async function ready() {
  await until(['health'], ({ health }) => ['ready', 'failed'].includes(health.status));
  if (state.health.status === 'failed') throw new Failure('internal', state.health.error);
}

/** The same, after the server has said that it is loading, whatever was known before. */
export async function readyAgain() {
  await new Promise((resolve) => setTimeout(resolve, LOADING_MS));
  await checkHealth();
  await ready();
}

/** Ask now; ask again by itself until the server is ready. */
export async function checkHealth() {
  clearTimeout(timer);
  const health = await fetchHealth();
  clearTimeout(timer);
  set({ health });
  if (health.status !== 'ready') timer = setTimeout(checkHealth, health.status === 'gone' ? GONE_MS : LOADING_MS);
}

export function startHealth() {
  checkHealth();
  let before = state.connected;
  watch(['connected'], ({ connected, everConnected }) => {
    if (everConnected && connected !== before) checkHealth();
    before = connected;
  });
}

async function fetchHealth() {
  const patience = new AbortController();
  const bell = setTimeout(() => patience.abort(), PATIENCE_MS);
  try {
    const reply = await fetch('health', { cache: 'no-store', signal: patience.signal });
    const body = await reply.json();
    return typeof body.status === 'string' ? body : { status: 'gone' };
  } catch {
    return { status: 'gone' };
  } finally {
    clearTimeout(bell);
  }
}
