// One question on the page: its pictures, its words, and a box to change them and ask again.

import { askInstead } from './asking.js';
import { icon, make, say } from './dom.js';
import { isSendKey } from './enter.js';
import { labelled, t } from './i18n.js';
import { state } from './state.js';
import { thumbnail } from './thumbnail.js';
import { isOver } from './turn.js';

/** A node with a method `refresh()`. */
export function questionView(turn) {
  const thumbs = turn.shown.map(thumbnail);
  const pictures = make('div', { class: 'question-pictures', hidden: !thumbs.length }, ...thumbs);
  const text = make('p', { class: 'question-text', dir: 'auto' });
  const edit = make('button', { type: 'button', class: 'quiet' }, icon('new'));
  const gone = make('p', { class: 'question-gone' });
  const line = make('div', { class: 'question-line' }, edit, text);
  const node = make('div', { class: 'question-turn' }, pictures, gone, line);
  let form = null;
  const close = () => {
    form?.remove();
    form = null;
    node.refresh();
  };
  edit.addEventListener('click', () => {
    form = editForm(turn, close);
    node.append(form);
    node.refresh();
    form.begin();
  });
  node.refresh = () => {
    thumbs.forEach((thumb) => thumb.refresh());
    say(text, turn.question);
    gone.hidden = !turn.missing;
    say(gone, turn.missing ? t('picture.gone', { n: turn.missing }) : '');
    line.hidden = Boolean(form);
    edit.hidden = !isOver(turn) || Boolean(state.active);
    labelled(edit, turn === state.turns.at(-1) ? 'edit' : 'edit.earlier');
    form?.refresh();
  };
  node.refresh();
  return node;
}

function editForm(turn, close) {
  const box = make('textarea', { class: 'question-edit', rows: '1', dir: 'auto' }, turn.question);
  const send = make('button', { type: 'submit', class: 'chip chip-main' });
  const cancel = make('button', { type: 'button', class: 'chip' });
  const form = make('form', { class: 'question-form' }, box, make('div', { class: 'question-buttons' }, cancel, send));
  form.refresh = () => {
    box.setAttribute('aria-label', t('edit'));
    say(send, t('edit.send'));
    say(cancel, t('cancel'));
    send.disabled = Boolean(state.active) || !box.value.trim();
  };
  form.begin = () => {
    grow(box);
    box.focus();
    box.setSelectionRange(box.value.length, box.value.length);
  };
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (send.disabled) return;
    askInstead(turn, box.value.trim());
    close();
  });
  cancel.addEventListener('click', close);
  box.addEventListener('input', () => {
    grow(box);
    form.refresh();
  });
  box.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && !event.isComposing) close();
    if (!isSendKey(event)) return;
    event.preventDefault();
    form.requestSubmit();
  });
  return form;
}

function grow(box) {
  box.style.height = 'auto';
  box.style.height = `${box.scrollHeight}px`;
}
