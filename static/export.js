// A conversation as a file: Markdown to read, JSON with everything in it. Knows the archive's records.

import { t } from './i18n.js';

const TITLE_CHARS = 80;

/** What a conversation is called: its first question. */
export function titleOf({ turns }) {
  const { question = '', task = '' } = turns[0] ?? {};
  const words = task ? t(`preset.${task}`) : question.replace(/\s+/g, ' ').trim();
  return words.length > TITLE_CHARS ? `${words.slice(0, TITLE_CHARS - 1)}…` : words;
}

/** A name that every file system takes. */
export function fileName(conversation, extension) {
  const words = titleOf(conversation).replace(/[\\/:*?"<>|\p{Cc}.]+/gu, ' ').trim().slice(0, 40);
  return `${new Date(conversation.began).toISOString().slice(0, 10)} ${words}`.trim() + `.${extension}`;
}

export function toMarkdown({ conversation, pictures }) {
  const names = new Map(pictures.map(({ key, name }) => [key, name || t('picture.untitled')]));
  const turns = conversation.turns.map(({ question, shown, text }) => {
    const seen = shown.map((key) => `*${names.get(key) ?? t('picture.untitled')}*\n\n`).join('');
    return `${seen}**${t('export.question')}** ${question}\n\n${text}\n`;
  });
  const when = new Date(conversation.began).toLocaleString();
  return `# ${titleOf(conversation)}\n\n${when}\n\n${turns.join('\n---\n\n')}`;
}

/** Resolves to JSON text; pictures are in it as data URLs. */
export async function toJson({ conversation, pictures }) {
  const files = await Promise.all(
    pictures.map(async ({ key, name, width, height, file }) => {
      return { key, name, width, height, file: await dataUrl(file) };
    }),
  );
  const turns = conversation.turns.map(({ question, text, shown, detail, reason, result }) => {
    const { model = null, usage = null, timings = null } = result ?? {};
    return { question, answer: text, pictures: shown, detail, finish_reason: reason, model, usage, timings };
  });
  const { id, began, changed } = conversation;
  const times = { began: new Date(began).toISOString(), changed: new Date(changed).toISOString() };
  return JSON.stringify({ id, title: titleOf(conversation), ...times, turns, pictures: files }, null, 2);
}

function dataUrl(file) {
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => resolve(null);
    reader.readAsDataURL(file);
  });
}
