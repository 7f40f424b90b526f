// The page's words in the reader's language. Knows the two dictionaries and the data-t* attributes of index.html.

import { label, say } from './dom.js';
import { set, state, watch } from './state.js';
import en from './words-en.js';
import zh from './words-zh.js';

const WORDS = { en, zh };

/** The words for `key`, with `{name}` filled in. */
export function t(key, values = {}) {
  const words = WORDS[state.language][key] ?? key;
  return words.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

/** What an error code means; a code that is new to this page reads as a fault of the server's. */
export function meaning(code) {
  return WORDS[state.language][`error.${code}`] ? t(`error.${code}`) : t('error.internal');
}

// What the server would add to these is said already.
const COMPLETE = ['queue_full', 'rate_limited', 'loading', 'timeout', 'internal', 'unknown_image', 'unauthorized'];

/** The server's own sentence of a failure; its sentences are in English. */
export function detailOf({ code, detail }) {
  return state.language === 'zh' && COMPLETE.includes(code) ? '' : detail;
}

/** `640 kB`, `3.4 MB`, `1.90 GB`. */
export function bytes(count) {
  if (count >= 1e9) return `${(count / 1e9).toFixed(2)} GB`;
  if (count >= 1e6) return `${(count / 1e6).toFixed(count < 1e7 ? 1 : 0)} MB`;
  return `${Math.round(count / 1e3)} kB`;
}

/** `4.2 s`, `37 s`, `2 min 5 s`. */
export function duration(seconds) {
  if (seconds >= 90) return t('minutes', { m: Math.floor(seconds / 60), s: Math.round(seconds % 60) });
  if (seconds < 0.1) return t('seconds', { n: '<\u202f0.1' });
  return t('seconds', { n: seconds < 10 && !Number.isInteger(seconds) ? seconds.toFixed(1) : Math.round(seconds) });
}

/** Name a button in the chosen language, now and after a switch. */
export function labelled(node, key, values = {}) {
  node.dataset.tLabel = key;
  node.dataset.tValues = JSON.stringify(values);
  label(node, t(key, values));
}

export function setLanguage(language) {
  set({ language });
}

/** Keep the words of index.html in the chosen language. */
export function startI18n() {
  state.language = document.documentElement.lang.startsWith('zh') ? 'zh' : 'en';
  watch(['language'], translate);
}

function translate() {
  document.documentElement.lang = state.language === 'zh' ? 'zh-CN' : 'en';
  for (const node of document.querySelectorAll('[data-t]')) say(node, t(node.dataset.t));
  for (const node of document.querySelectorAll('[data-t-label]')) {
    label(node, t(node.dataset.tLabel, JSON.parse(node.dataset.tValues ?? '{}')));
  }
  for (const node of document.querySelectorAll('[data-t-title]')) node.title = t(node.dataset.tTitle);
  for (const node of document.querySelectorAll('[data-t-name]')) node.setAttribute('aria-label', t(node.dataset.tName));
}
