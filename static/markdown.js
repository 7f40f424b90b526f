// From an answer's Markdown to HTML, block by block. Nothing in it may become live: HTML is shown as the text it is;
// pictures, and links to anything but http(s), stay as they were written. sanitiser.js does not trust any of this.

import { Marked } from './vendor/marked.esm.js';

const UNDER = 2; // the page has h1 and h2
const none = () => undefined; // "not one of these": the text goes on as a paragraph

const escaped = (text, line = '<br>') =>
  text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`).replace(/\n/g, line);

// \\( \\), \\[ \\], $$ $$, and $ $ where it can hardly be money.
const INLINE = /^(?:\\\((.+?)\\\)|\$(?![\s\d])([^$\n]+?)(?<!\s)\$(?!\d))/s;
const DISPLAY = /^(?:\$\$(.+?)\$\$|\\\[(.+?)\\\])/s;

const look = (pattern) => (pattern === DISPLAY ? 'math-display' : 'math-inline');

const math = (level, pattern, name) => ({
  name,
  level,
  start: (src) => src.match(level === 'block' ? /(?<=\n)(?:\$\$|\\\[)/ : /\\[([]|\$/)?.index,
  tokenizer(src) {
    const found = pattern.exec(src);
    return found ? { type: name, raw: found[0], tex: (found[1] ?? found[2]).trim() } : undefined;
  },
  renderer: ({ tex }) => `<code class="${look(pattern)}">${escaped(tex, '\n')}</code>`,
});

const marked = new Marked({
  gfm: true,
  extensions: [
    math('block', DISPLAY, 'mathBlock'),
    math('inline', DISPLAY, 'mathDisplay'),
    math('inline', INLINE, 'mathInline'),
  ],
  breaks: true, // text read from a picture keeps its lines
  tokenizer: {
    html: none,
    tag: none,
    lheading: none, // a list that is just beginning, "Items:" and "-", would flash as a heading
  },
  renderer: {
    html: ({ raw }) => escaped(raw),
    image: ({ raw }) => escaped(raw),
    checkbox: ({ checked }) => (checked ? '☑ ' : '☐ '),
    heading({ tokens, depth }) {
      const tag = `h${Math.min(6, depth + UNDER)}`;
      return `<${tag}>${this.parser.parseInline(tokens)}</${tag}>`;
    },
    link({ href, raw, tokens }) {
      if (!isWeb(href)) return escaped(raw);
      return `<a href="${escaped(href)}">${this.parser.parseInline(tokens)}</a>`;
    },
  },
});

/** The HTML of each block, in order. While text grows, only the last ones change. Not safe yet. */
export function blocksOf(text) {
  const tokens = marked.lexer(text);
  return tokens.filter(({ type }) => type !== 'space' && type !== 'def').map((token) => marked.parser([token]));
}

export function isWeb(href) {
  try {
    return ['http:', 'https:'].includes(new URL(href).protocol);
  } catch {
    return false; // relative: a place on this server, which answers have no business with
  }
}
