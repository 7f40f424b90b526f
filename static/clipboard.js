// Putting text on the clipboard.

/** Resolves to whether it worked. `navigator.clipboard` exists only on https and localhost. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

function copyBySelection(text) {
  const holder = document.createElement('textarea');
  const before = document.activeElement;
  holder.value = text;
  holder.className = 'visually-hidden';
  document.body.append(holder);
  holder.select();
  const worked = document.execCommand('copy');
  holder.remove();
  before?.focus({ preventScroll: true });
  return worked;
}
