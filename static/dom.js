// Making elements. Text goes in as text, never as HTML.

const SVG = 'http://www.w3.org/2000/svg';

export const find = (id) => document.getElementById(id);

/** `make('p', { class: 'why', hidden: true }, 'text', child)` */
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'boolean') node.toggleAttribute(name, value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** One of the drawings in index.html. */
export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  const use = document.createElementNS(SVG, 'use');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  use.setAttribute('href', `#icon-${name}`);
  svg.append(use);
  return svg;
}

/** Set the text only when it differs, so that a selection in it survives. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Name a button for the eye (tooltip) and for the ear. */
export function label(node, text) {
  node.setAttribute('aria-label', text);
  node.title = text;
}
