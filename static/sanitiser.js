// From HTML to nodes that are safe to show: no scripts, no styles, nothing that loads, links to http(s) only.

import { isWeb } from './markdown.js';
import purify from './vendor/purify.es.js';

const RULES = {
  ALLOWED_TAGS: [
    'a', 'blockquote', 'br', 'code', 'del', 'em', 'h3', 'h4', 'h5', 'h6', 'hr', 'li', 'ol', 'p', 'pre', 'strong',
    'table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul', '#text',
  ],
  ALLOWED_ATTR: ['align', 'class', 'href', 'start'],
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

purify.addHook('afterSanitizeAttributes', (node) => {
  if (node.localName !== 'code') node.removeAttribute('class'); // there it names the language
  if (node.localName !== 'a') return;
  if (isWeb(node.getAttribute('href') ?? '')) {
    node.target = '_blank';
    node.rel = 'noopener noreferrer nofollow';
  } else {
    node.removeAttribute('href');
  }
});

/** A fragment of what is allowed in `html`. */
export const safe = (html) => purify.sanitize(html, RULES);
