"""From token ids to printable text as they come, whole characters only. Knows one tokenizer, no model.

Byte-level tokens are bytes. An incremental UTF-8 decoder keeps the beginning of a character back until its end
arrives and turns what can never become one into U+FFFD at once, so neither half a character nor a stall is possible.
"""

import codecs
from collections.abc import Iterable

from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode


class TokenBytes:
    """Id -> the bytes it writes; nothing for special tokens. One for all sequences."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        letters = {char: byte for byte, char in bytes_to_unicode().items()}
        added = tokenizer.added_tokens_decoder
        self.table: dict[int, bytes] = {}
        for token, index in tokenizer.get_vocab().items():
            if index in added:
                self.table[index] = b"" if added[index].special else added[index].content.encode()
            else:
                self.table[index] = bytes(letters[c] for c in token)

    def __getitem__(self, token: int) -> bytes:
        # a vocabulary padded to a round size has ids without a token
        return self.table.get(token, b"")

    def text(self, tokens: Iterable[int]) -> str:
        """What some tokens write together."""
        return b"".join(self[token] for token in tokens).decode(errors="replace")


class Detokenizer:
    """The text of one answer, piece by piece."""

    def __init__(self, token_bytes: TokenBytes):
        self._bytes, self._decoder = token_bytes, codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """What can be printed after this token; often a word, sometimes nothing."""
        return self._decoder.decode(self._bytes[token])

    def finish(self) -> str:
        """What is left when no token will follow."""
        return self._decoder.decode(b"", final=True)
