// What stands around code and tables in an answer: a name, and buttons to copy them or to save them as a file.

import { copyButton } from './copy-button.js';
import { icon, make } from './dom.js';
import { labelled, t } from './i18n.js';

const EXTENSIONS = { json: 'json', csv: 'csv', tsv: 'tsv', html: 'html', xml: 'xml', markdown: 'md', python: 'py' };

export function frameCode(pre) {
  const code = pre.querySelector('code') ?? pre;
  const language = /language-([\w+#-]+)/.exec(code.className)?.[1] ?? '';
  const text = () => code.textContent;
  const copy = copyButton(text, 'copy.code');
  const tools = make('div', { class: 'frame-tools' }, make('span', { class: 'frame-name' }, language), copy);
  if (EXTENSIONS[language]) tools.append(saveButton(text, `answer.${EXTENSIONS[language]}`));
  pre.tabIndex = 0; // it scrolls sideways
  pre.replaceWith(make('div', { class: 'frame' }, tools, pre.cloneNode(false)));
  tools.nextSibling.append(code);
}

export function frameTable(table) {
  const copy = copyButton(() => tabbed(table), 'copy.table');
  const name = make('span', { class: 'frame-name', 'data-t': 'table' }, t('table'));
  const tools = make('div', { class: 'frame-tools' }, name, copy);
  tools.append(saveButton(() => csv(table), 'answer.csv'));
  const scroller = make('div', { class: 'frame-table', tabindex: '0' });
  const frame = make('div', { class: 'frame' }, tools, scroller);
  table.replaceWith(frame);
  scroller.append(table);
}

/** Give `text` to the reader as a file. */
export function save(text, name) {
  const url = URL.createObjectURL(new Blob([text], { type: 'text/plain;charset=utf-8' }));
  make('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function saveButton(text, name) {
  const button = make('button', { type: 'button', class: 'quiet' }, icon('save'));
  labelled(button, 'save.file', { name });
  button.addEventListener('click', () => save(text(), name));
  return button;
}

const rowsOf = (table) => [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()));

// Spreadsheets put pasted tabs into cells.
const tabbed = (table) => rowsOf(table).map((cells) => cells.join('\t')).join('\n');

// RFC 4180; the mark in front tells spreadsheets that this is UTF-8.
function csv(table) {
  const quoted = (cell) => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  return `\ufeff${rowsOf(table).map((cells) => cells.map(quoted).join(',')).join('\r\n')}\r\n`;
}
