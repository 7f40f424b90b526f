// How an answer's text becomes something to look at. A block that did not change is left alone while the answer grows,
// so that a selection in it and the place where a wide table was scrolled to survive.

import { frameCode, frameTable } from './frames.js';
import { drawFormula } from './formula.js';
import { blocksOf } from './markdown.js';
import { safe } from './sanitiser.js';

const drawn = new WeakMap(); // node of a block -> the HTML it was made of
const texts = new WeakMap(); // node of an answer -> its text

/** Show `text`, Markdown that may be half-written, in `node`. */
export function renderAnswer(node, text) {
  if (texts.get(node) === text) return;
  texts.set(node, text);
  const blocks = blocksOf(text);
  blocks.forEach((html, at) => {
    const block = node.children[at] ?? node.appendChild(document.createElement('div'));
    if (drawn.get(block) !== html) draw(block, html);
  });
  while (node.children.length > blocks.length) node.lastElementChild.remove();
}

function draw(block, html) {
  drawn.set(block, html);
  block.replaceChildren(safe(html));
  block.querySelectorAll('code[class^=math-]').forEach(drawFormula);
  block.querySelectorAll('pre').forEach(frameCode);
  block.querySelectorAll('table').forEach(frameTable);
}
