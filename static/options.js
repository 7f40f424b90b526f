// The dialog with what a reader may want to change once: how long answers get, how free they are, what is kept.

import { usage } from './archive.js';
import { find, make, say } from './dom.js';
import { bytes, t } from './i18n.js';
import { keep, kept } from './kept.js';
import { set, state, watch } from './state.js';

const LENGTHS = [128, 256, 512, 1024, 2048, 4096];

export function startOptions() {
  const dialog = find('options');
  set({ limit: number('limit'), temperature: number('temperature'), keeping: kept('keeping') !== 'off' });
  find('options-open').addEventListener('click', () => {
    dialog.showModal();
    tellUsage();
  });
  dialog.addEventListener('click', (event) => event.target === dialog && dialog.close());
  find('limit').addEventListener('change', ({ target }) => choose('limit', target.value ? Number(target.value) : null));
  find('temperature').addEventListener('input', ({ target }) => choose('temperature', Number(target.value) || null));
  find('keeping').addEventListener('change', ({ target }) => {
    keep('keeping', target.checked ? null : 'off');
    set({ keeping: target.checked });
  });
  watch(['limit', 'temperature', 'keeping', 'health', 'language'], show);
}

function show({ limit, temperature, keeping, health }) {
  const { max_new_tokens: usual, max_new_tokens_limit: most = Infinity } = health.limits ?? {};
  const usually = make('option', { value: '' }, t('options.usual', { n: usual ?? '…' }));
  const lengths = LENGTHS.filter((length) => length <= most);
  const choices = lengths.map((n) => make('option', { value: String(n) }, t('options.tokens', { n })));
  find('limit').replaceChildren(usually, ...choices);
  find('limit').value = lengths.includes(limit) ? String(limit) : '';
  find('temperature').value = String(temperature ?? 0);
  say(find('temperature-value'), (temperature ?? 0).toFixed(1));
  find('keeping').checked = keeping;
}

async function tellUsage() {
  const { bytes: size, ...counts } = await usage();
  say(find('kept-now'), t('options.kept', { ...counts, size: bytes(size) }));
}

function choose(name, value) {
  keep(name, value === null ? null : String(value));
  set({ [name]: value });
}

function number(name) {
  const text = kept(name);
  return text !== null && Number.isFinite(Number(text)) ? Number(text) : null;
}
