// What the pictures of the next question will cost: under them, and at each choice of detail.

import { find, say } from './dom.js';
import { duration, t } from './i18n.js';
import { costOf, waitFor } from './pace.js';
import { state, watch } from './state.js';

export function startCost() {
  watch(['pictures', 'detail', 'language', 'pace', 'health'], () => {
    const facts = factsOf(state.pictures);
    find('tray-facts').hidden = !facts;
    say(find('tray-facts'), facts);
    for (const option of find('detail').options) say(option, choice(option.value));
  });
}

function factsOf(pictures) {
  const costs = pictures.map((picture) => costOf(picture, state.detail));
  if (!costs.length || costs.includes(null)) return '';
  const tokens = costs.reduce((sum, cost) => sum + cost.tokens, 0).toLocaleString(document.documentElement.lang);
  const words = [costs.length === 1 ? sizes(pictures[0], costs[0]) : t('cost.pictures', { n: costs.length })];
  const read = costs.every((cost) => cost.read);
  words.push(t(read ? 'picture.seen' : 'cost.tokens', { tokens }));
  const wait = waitFor(pictures, state.detail);
  if (read) words.push(t('cost.read'));
  else if (wait !== null) words.push(t('cost.wait', { time: rounded(wait) }));
  return words.join(' · ');
}

const sizes = (picture, { width, height }) =>
  t(width < picture.width ? 'cost.shrunk' : 'picture.size', { ...picture, readWidth: width, readHeight: height });

function choice(detail) {
  const wait = waitFor(state.pictures, detail);
  const name = t(`detail.${detail}`);
  return wait ? `${name} · ${t('cost.about', { time: rounded(wait) })}` : name;
}

const rounded = (seconds) => duration(Math.max(1, Math.round(seconds)));
