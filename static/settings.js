// The reader's choices: language, colours, detail. Kept in this browser and nowhere else.

import { find, label } from './dom.js';
import { setLanguage, t } from './i18n.js';
import { keep, kept } from './kept.js';
import { set, state, until, watch } from './state.js';

const root = document.documentElement;
const dark = matchMedia('(prefers-color-scheme: dark)');

export function startSettings() {
  if (kept('detail')) set({ detail: kept('detail') });
  else until(['health'], ({ health }) => health.limits).then(takeServersDetail);
  watch(['detail'], ({ detail }) => (find('detail').value = detail));
  find('detail').addEventListener('change', (event) => {
    keep('detail', event.target.value);
    set({ detail: event.target.value });
  });
  find('language').addEventListener('click', () => {
    const other = state.language === 'zh' ? 'en' : 'zh';
    keep('language', other);
    setLanguage(other);
  });
  find('theme').addEventListener('click', switchTheme);
  dark.addEventListener('change', nameTheme);
  watch(['language'], nameTheme);
}

function takeServersDetail() {
  if (!kept('detail')) set({ detail: state.health.limits.detail });
}

// A choice that equals the system's is not kept, so the page follows the system again.
function switchTheme() {
  const theme = root.dataset.theme === 'dark' ? 'light' : 'dark';
  root.dataset.theme = theme;
  keep('theme', theme === (dark.matches ? 'dark' : 'light') ? null : theme);
  nameTheme();
}

function nameTheme() {
  label(find('theme'), t(root.dataset.theme === 'dark' ? 'theme.light' : 'theme.dark'));
}
