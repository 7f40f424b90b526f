"""Notices an answer that has begun to go round in circles. Knows ids and the text they write, no model.

A loop goes on for ever and a list ends, so length tells them apart; but cells of a table may well be the same for
long. What has letters in it may come round for LOOP_TOKENS, mere numbers, dashes and bars for TABLE_TOKENS.
"""

from collections.abc import Callable

import numpy as np

LONGEST_CYCLE = 128
LEAST_ROUNDS = 4
LOOP_TOKENS = 192
TABLE_TOKENS = 768


class Repetition:
    """Watches one answer. `text_of` gives the text of some ids."""

    def __init__(self, text_of: Callable[[list[int]], str]):
        self._text_of = text_of
        self._recent: list[int] = []
        # for each period p: how many tokens in a row equalled the one p places before
        self._run = np.zeros(LONGEST_CYCLE + 1, dtype=np.int64)

    def push(self, token: int) -> bool:
        """One more token; True if the answer does nothing but repeat itself."""
        before = np.array(self._recent[::-1])
        periods = slice(1, len(before) + 1)
        self._run[periods] = (self._run[periods] + 1) * (before == token)
        self._recent = [*self._recent[-(LONGEST_CYCLE - 1) :], token]
        spans = self._run + np.arange(LONGEST_CYCLE + 1)
        looping = np.flatnonzero((self._run >= LOOP_TOKENS) & (spans >= LEAST_ROUNDS * np.arange(LONGEST_CYCLE + 1)))
        if not len(looping):
            return False
        period = int(looping[0])
        mere_table = not any(c.isalpha() for c in self._text_of(self._recent[-period:]))
        return bool(self._run[period] >= (TABLE_TOKENS if mere_table else LOOP_TOKENS))
