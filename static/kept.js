// The reader's choices, by name, in this browser. Where storage is switched off they last as long as the page.

export function kept(name) {
  try {
    return localStorage.getItem(`qwenvl.${name}`);
  } catch {
    return null;
  }
}

/** `null` forgets it. */
export function keep(name, value) {
  try {
    if (value === null) localStorage.removeItem(`qwenvl.${name}`);
    else localStorage.setItem(`qwenvl.${name}`, value);
  } catch {
    // see above
  }
}
