// What the reader must know about the server before anything else, and the name of the model.

import { find, say } from './dom.js';
import { t } from './i18n.js';
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
  const { fraction, error } = state.health;
  banner.dataset.kind = kind;
  say(find('banner-title'), t(`banner.${kind}`));
  say(find('banner-text'), kind === 'failed' ? (error ?? '') : t(`banner.${kind}.more`));
  say(find('banner-stage'), kind === 'loading' ? percent(fraction) : '');
  find('banner-bar').hidden = kind !== 'loading';
  find('banner-fill').style.transform = `scaleX(${fraction ?? 0})`;
}

function kindNow() {
  const { status, demo } = state.health;
  if (status === 'gone') return 'gone';
  if (lostSince !== null && performance.now() - lostSince >= GRACE_MS) return 'lost';
  if (status === 'loading') return 'loading';
  if (status !== 'ready' && status !== 'unknown') return 'failed';
  return demo ? 'demo' : null;
}

function percent(fraction) {
  return typeof fraction === 'number' && fraction > 0 ? `${Math.round(fraction * 100)}%` : '';
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
