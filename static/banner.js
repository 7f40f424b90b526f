// What the reader must know about the server before anything else, and the name of the model.

import { find, say } from './dom.js';
import { bytes, duration, t } from './i18n.js';
import { state, watch } from './state.js';

const GRACE_MS = 1500; // a connection that comes back at once is not worth a word
let lostSince = null;

export function startBanner() {
  watch(['health', 'language'], showModel);
  watch(['health', 'connected', 'language'], () => {
    noteLoss();
    show();
  });
}

function noteLoss() {
  if (state.connected || !state.everConnected) lostSince = null;
  else if (lostSince === null) {
    lostSince = performance.now();
    setTimeout(show, GRACE_MS + 50);
  }
}

function show() {
  const kind = kindNow();
  const banner = find('banner');
  banner.hidden = !kind;
  if (!kind) return;
  const { health } = state;
  banner.dataset.kind = kind;
  say(find('banner-title'), t(kind === 'loading' ? titleOfStage(health.stage) : `banner.${kind}`));
  say(find('banner-figures'), kind === 'loading' ? figuresOf(health) : '');
  say(find('banner-text'), kind === 'failed' ? (health.error ?? '') : t(`banner.${kind}.more`));
  find('banner-bar').hidden = kind !== 'loading';
  find('banner-bar').setAttribute('aria-valuenow', String(Math.round(100 * (health.fraction ?? 0))));
  find('banner-fill').style.transform = `scaleX(${health.fraction ?? 0})`;
}

// The server names its stages in English; these are the ones that take long enough to be worth a name.
function titleOfStage(stage = '') {
  const known = ['downloading', 'quantising'].find((word) => stage.startsWith(word));
  return `banner.${known ?? 'loading'}`;
}

function figuresOf({ fraction, bytes_done: done, bytes_total: total, rate_bytes_s: rate, eta_s: eta }) {
  const words = [fraction > 0 ? `${Math.floor(fraction * 100)}%` : ''];
  if (total) words.push(t('banner.bytes', { done: bytes(done), total: bytes(total) }));
  if (total) words.push(rate > 0 ? t('banner.rate', { rate: bytes(rate) }) : t('banner.stalled'));
  if (eta >= 1) words.push(t('eta', { time: duration(Math.round(eta)) }));
  return words.filter(Boolean).join(' · ');
}

function kindNow() {
  const { status, demo } = state.health;
  if (status === 'gone') return 'gone';
  if (lostSince !== null && performance.now() - lostSince >= GRACE_MS) return 'lost';
  if (status === 'loading') return 'loading';
  if (status !== 'ready' && status !== 'unknown') return 'failed';
  return demo ? 'demo' : null;
}

function showModel({ health }) {
  const chip = find('model');
  const known = health.status === 'ready';
  chip.hidden = health.status === 'unknown';
  if (chip.hidden) return;
  chip.dataset.status = health.status;
  say(find('model-name'), known ? shortName(health.model) : t(`model.${health.status}`));
  chip.title = known ? t('model.title', health) : '';
}

// A folder or a Hub id: its last part says which model it is.
function shortName(model = '') {
  return model.split(/[\\/]/).filter(Boolean).at(-1) ?? '';
}
