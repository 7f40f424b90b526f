// The conversation on the page: one list item for each turn, brought up to date as its turn changes.

import { answerView } from './answer-view.js';
import { find, make } from './dom.js';
import { questionView } from './question-view.js';
import { state, touch, watch } from './state.js';

const NEAR_PX = 80;
const shown = new Map(); // turn -> its list item
let following = true; // keep the end in view, until the reader scrolls away from it

export function startConversation() {
  const scroller = find('scroller');
  scroller.addEventListener('scroll', () => setFollowing(isAtEnd(scroller)), { passive: true });
  find('latest').addEventListener('click', () => toEnd(scroller));
  new ResizeObserver(() => following && toEnd(scroller)).observe(scroller);
  watch(['turns', 'language', 'active', 'connected', 'health'], () => {
    draw();
    if (following) toEnd(scroller);
  });
  setInterval(() => state.active && touch('turns'), 1000); // the seconds that a question has taken
}

function draw() {
  const { turns } = state;
  document.body.dataset.mode = turns.length ? 'talk' : 'welcome';
  for (const [turn, item] of shown) if (!turns.includes(turn)) drop(turn, item);
  for (const turn of turns) if (!shown.has(turn)) hang(turn);
  shown.forEach((item) => item.refresh());
}

function hang(turn) {
  const question = questionView(turn);
  const answer = answerView(turn);
  const item = make('li', { class: 'turn' }, question, answer);
  item.refresh = () => {
    question.refresh();
    answer.refresh();
  };
  shown.set(turn, item);
  find('turns').append(item);
  setFollowing(true);
}

function drop(turn, item) {
  item.remove();
  shown.delete(turn);
}

function isAtEnd(scroller) {
  return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_PX;
}

function setFollowing(value) {
  following = value;
  find('latest').hidden = value || !state.turns.length;
}

function toEnd(scroller) {
  scroller.scrollTop = scroller.scrollHeight;
}
