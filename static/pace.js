// What a picture costs: its size after shrinking, its tokens, and the seconds this server takes to read it, learned
// from its own answers. Knows no element of the page.

import { fittedSize } from './shrink.js';
import { set, state } from './state.js';

const NAME = 'qwenvl.pace';
// Of Qwen3-VL, until the server says how large pictures are to its model: what is smaller or larger is resized.
const LIMITS = { token_side: 32, min_pixels: 65_536, max_pixels: 16_777_216 };
const NEWEST = 0.4; // weight of the newest answer

/**
 * `{ width, height, tokens, read }` of a picture as the model will see it; null where the page could not open it.
 * `read` says that it was read at this size before; its tokens are then known, not reckoned.
 */
export function costOf({ width, height, seen, seenAs }, detail) {
  if (!width || !height) return null;
  const size = readSize(width, height, detail);
  const before = seen && seenAs && readSize(width, height, seenAs);
  if (before?.width === size.width) return { ...size, tokens: seen.tokens, read: true };
  const { token_side: side, min_pixels: least } = limits();
  const tokens = Math.round(size.width / side) * Math.round(size.height / side);
  return { ...size, tokens: Math.max(Math.floor(least / side ** 2), tokens), read: false };
}

const limits = () => ({ ...LIMITS, ...state.health.picture });

// What is too large for the model is cut down to whole tokens, as its processor does it.
function readSize(width, height, detail) {
  const size = fittedSize(width, height, detail);
  const { token_side: side, max_pixels: most } = limits();
  const scale = Math.sqrt(most / (size.width * size.height));
  if (scale >= 1) return size;
  const whole = (pixels) => Math.max(1, Math.floor((pixels * scale) / side)) * side;
  return { width: whole(size.width), height: whole(size.height) };
}

/** Seconds to read these pictures, without those that were read before at this size; null while nothing is known. */
export function waitFor(pictures, detail) {
  const rate = rateOf(detail);
  if (rate === null) return null;
  const costs = pictures.map((picture) => costOf(picture, detail));
  return costs.reduce((sum, cost) => sum + (cost && !cost.read ? cost.tokens : 0), 0) * rate;
}

/** Learn from an answer. One that had a picture from memory says nothing of how long reading takes. */
export function learn({ detail, result }) {
  const images = result?.images ?? [];
  const tokens = images.reduce((sum, image) => sum + (image.tokens ?? 0), 0);
  const { encode_s: encode = 0, prefill_s: prefill = 0 } = result?.timings ?? {};
  if (!tokens || encode <= 0 || images.some((image) => image.cached)) return;
  const newest = (encode + prefill) / tokens;
  const known = rates()[detail];
  keep({ ...rates(), [detail]: known ? known + NEWEST * (newest - known) : newest });
}

export function startPace() {
  try {
    set({ pace: JSON.parse(localStorage.getItem(NAME)) });
  } catch {
    // nothing is known yet
  }
}

// A large picture's token takes longer than a small one's, so every detail has its own; the nearest will do at first.
function rateOf(detail) {
  const known = rates();
  return known[detail] ?? known.balanced ?? known.fine ?? known.fast ?? null;
}

const machine = () => `${state.health.model} ${state.health.quantization} ${state.health.threads}`;

// Another model or machine behind the same address starts anew.
const rates = () => (state.pace?.machine === machine() ? state.pace.rates : {});

function keep(learnt) {
  set({ pace: { machine: machine(), rates: learnt } });
  try {
    localStorage.setItem(NAME, JSON.stringify(state.pace));
  } catch {
    // it lasts as long as the page
  }
}
