// A PDF was handed over: its only page becomes a picture, of several the reader chooses in a dialog.

import { notice } from './announcer.js';
import { find, make, say } from './dom.js';
import { t } from './i18n.js';
import { openPdf } from './pdf.js';
import { state, watch } from './state.js';

const SIDE = 2048; // fine enough for small print; shrink.js makes of it what the detail asks for
const PREVIEW_SIDE = 320;
let pdf = null; // what the dialog shows

export const isPdf = (file) => file.type === 'application/pdf' || /\.pdf$/i.test(file.name);

/** Resolves to the chosen pages as picture files. */
export async function pagesOf(file) {
  let opened;
  try {
    opened = await openPdf(file);
    const numbers = opened.count === 1 ? [1] : await chosen(opened, file.name);
    return await drawn(opened, numbers, file.name.replace(/\.pdf$/i, ''));
  } catch {
    notice(t('pdf.failed', { name: file.name }));
    return [];
  } finally {
    opened?.close();
  }
}

export function startPdfPages() {
  const dialog = find('pdf');
  find('pdf-pages').addEventListener('change', () => refresh());
  dialog.addEventListener('click', (event) => event.target === dialog && dialog.close(''));
  watch(['language', 'pictures'], () => dialog.open && refresh());
}

async function drawn(opened, numbers, name) {
  const files = [];
  for (const number of numbers) {
    const blob = await opened.draw(number, SIDE);
    files.push(new File([blob], opened.count === 1 ? `${name}.png` : `${name} ${number}.png`, { type: 'image/png' }));
  }
  return files;
}

function chosen(opened, name) {
  const dialog = find('pdf');
  pdf = opened;
  say(find('pdf-name'), name);
  find('pdf-pages').replaceChildren(...Array.from({ length: opened.count }, (_, at) => pageChoice(at + 1)));
  find('pdf-pages').querySelector('input').checked = true;
  dialog.returnValue = '';
  refresh();
  dialog.showModal();
  preview(opened);
  return new Promise((resolve) => {
    const done = () => {
      pdf = null;
      resolve(dialog.returnValue === 'add' ? checked() : []);
    };
    dialog.addEventListener('close', done, { once: true });
  });
}

function pageChoice(number) {
  const box = make('input', { type: 'checkbox', value: String(number) });
  const image = make('img', { alt: '', hidden: true });
  return make('li', {}, make('label', { class: 'pdf-page' }, image, make('span', {}, box, ` ${number}`)));
}

// One after the other, while the dialog shows this document.
async function preview(opened) {
  for (const [at, image] of [...find('pdf-pages').querySelectorAll('img')].entries()) {
    if (pdf !== opened) return;
    const blob = await opened.draw(at + 1, PREVIEW_SIDE).catch(() => null);
    if (!blob || pdf !== opened) continue;
    const url = URL.createObjectURL(blob);
    image.addEventListener('load', () => URL.revokeObjectURL(url), { once: true });
    image.src = url;
    image.hidden = false;
  }
}

const checked = () => [...find('pdf-pages').querySelectorAll(':checked')].map((box) => Number(box.value));

function refresh() {
  const room = (state.health.limits?.max_images ?? Infinity) - state.pictures.length;
  const count = checked().length;
  find('pdf-add').disabled = !count || count > room;
  say(find('pdf-add'), t('pdf.add', { n: count }));
  say(find('pdf-note'), count > room ? t('pdf.toomany', { room }) : t('pdf.note'));
}
