// How an answer's text becomes something to look at. The only place that knows; today it is plain text.

/** Show `text` in `node`. A text that only grew is appended to, so that a selection in it survives. */
export function renderAnswer(node, text) {
  const shown = node.firstChild;
  if (!shown) node.append(text);
  else if (text.startsWith(shown.data)) shown.appendData(text.slice(shown.data.length));
  else shown.data = text;
}
