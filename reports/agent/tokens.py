"""How many tokens a text takes, estimated without the tokenizer of any model.

Tokenizers split text into words and pieces of words, groups of digits, and runs of punctuation. The estimate counts
such pieces. It is on the high side: 7 to 14 % above the tokenizer of Claude 2 for reports, JSON and source.
"""

from __future__ import annotations

import re

_PIECES = re.compile(
    r"(?P<letters>[A-Za-z]+)|(?P<digits>[0-9]+)|(?P<space>\s+)|(?P<marks>[!-/:-@\[-`{-~]+)|(?P<rest>.)"
)
_CHARACTERS_OF_A_TOKEN = {"letters": 6, "digits": 3, "marks": 2}


def estimated_tokens(text: str) -> int:
    """Tokens of `text`. A space before a word costs nothing; a character outside ASCII costs its bytes in UTF-8."""
    tokens = 0
    for piece in _PIECES.finditer(text):
        kind = piece.lastgroup or "rest"
        if kind == "space":
            tokens += piece[0] != " "
        elif kind == "rest":
            tokens += len(piece[0].encode("utf-8", "backslashreplace"))
        else:
            tokens += -(-len(piece[0]) // _CHARACTERS_OF_A_TOKEN[kind])
    return tokens
