"""Guesses at the tokens to come, taken from where the prompt or the answer said the same before. Knows ids only.

Tables, JSON and quotations repeat themselves. Up to eight rows through the weights cost about what one costs, so a
guess is checked together with the token in hand: the model's own choice decides, and the answer is what it would have
been. (Prompt lookup decoding: Saxena 2023; there is no second model.)
"""

from collections.abc import Iterable

# tokens in a row that must have been there before
GRAM = 3
# rows of all sequences together that one step may cost
MOST_ROWS = 8
# steps without a guess after guesses that were wrong: twice as many each time, up to the last
SHORTEST_PAUSE, LONGEST_PAUSE = 4, 64


class Guesser:
    """The guesses for one answer. Asks for more while they are right, for fewer and at last for none when wrong."""

    def __init__(self, ids: Iterable[int]):
        self._ids: list[int] = []
        self._behind: dict[tuple[int, ...], int] = {}  # GRAM tokens -> the place behind where they stood last
        self._width, self._pause, self._next_pause = 2, 0, SHORTEST_PAUSE
        for token in ids:
            self.push(token)

    def push(self, token: int) -> None:
        """One more token of the prompt or the answer."""
        if len(self._ids) >= GRAM:
            self._behind[tuple(self._ids[-GRAM:])] = len(self._ids)
        self._ids.append(token)

    def guess(self, limit: int) -> list[int]:
        """At most `limit` tokens that may come next; often none."""
        if self._pause:
            self._pause -= 1
            return []
        place = self._behind.get(tuple(self._ids[-GRAM:]), len(self._ids))
        return self._ids[place : place + min(limit, self._width)] if limit > 0 else []

    def learn(self, guessed: int, right: int) -> None:
        """Of `guessed` tokens the first `right` were what the model wrote."""
        if not guessed:
            return
        if right == guessed:
            self._width, self._next_pause = min(2 * self._width, MOST_ROWS), SHORTEST_PAUSE
        elif right == 0:
            self._width = max(1, self._width // 2)
            self._pause, self._next_pause = self._next_pause, min(2 * self._next_pause, LONGEST_PAUSE)
