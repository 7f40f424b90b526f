// When Enter sends: not with Shift, and never when it belongs to an input method.

const IME = 229; // the key code of a key that an input method has taken; Safari says so only by it

export const isComposing = (event) => event.isComposing || event.keyCode === IME;

export const isSendKey = (event) => event.key === 'Enter' && !event.shiftKey && !isComposing(event);
