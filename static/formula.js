// Formulas in answers. markdown.js finds them; here TeX becomes MathML, which browsers draw by themselves, without
// styles or fonts of a library. The library is fetched when the first formula appears; until then one sees the TeX.

const RULES = { output: 'mathml', trust: false, maxSize: 20, maxExpand: 200 };
let loading = null;

/** `node` holds TeX and has the class `math-inline` or `math-display`. */
export async function drawFormula(node) {
  const tex = node.textContent;
  loading ??= import('./vendor/katex.min.js');
  await loading.catch(() => (loading = null)); // without it, or without a network, the TeX stays
  if (!globalThis.katex) return;
  const span = document.createElement('span');
  span.className = node.className;
  try {
    globalThis.katex.render(tex, span, { ...RULES, displayMode: node.classList.contains('math-display') });
    node.replaceWith(span);
  } catch {
    // no TeX, or only half of it: it stays as it was written
  }
}
