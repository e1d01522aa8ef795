"""Tokens of a condition as typed by a user: words, signs, numbers and texts."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

TOKENS = re.compile(
    r"""(?P<space>\s+)
      | (?P<date>[0-9]{4}-[0-9]{2}
          (?:-[0-9]{2}(?:[Tt][0-9:.]+(?:[Zz]|[+-][0-9]{2}:[0-9]{2})?)?)?(?![\w.:-]))
      | (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.]))
      | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<pattern>/(?:[^/\\]|\\.)*/)
      | (?P<quoted>`(?:[^`]|``)+`)
      | (?P<word>[^\W\d][\w.-]*)
      | (?P<sign><=|>=|==|!=|<>|[=<>(),~])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """``kind`` is a group of TOKENS, or ``end``. ``at`` counts characters from 0."""

    kind: str
    text: str
    at: int

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words


def as_json(token: Token) -> str:
    """A number or text as JSON has it: in double quotes, with the escapes that JSON knows."""
    if token.kind == "number":
        return token.text
    inner = re.sub(r"\\.|[\"\x00-\x1f]", _escape, token.text[1:-1], flags=re.DOTALL)
    return f'"{inner}"'


def _escape(match: re.Match[str]) -> str:
    if match[0] == r"\'":
        return "'"
    return match[0] if match[0].startswith("\\") else json.dumps(match[0])[1:-1]


def unreadable(text: str, at: int) -> tuple[str, str]:
    """The mistake at a place where no token begins, and what to do about it."""
    if text[at] in "\"'`/":
        return "a quote is not closed", rf"end it with {text[at]}"
    if text[at].isdigit() or text[at] in "+-.":
        return "this is not a number", "numbers are written as in JSON: 18, -2.5, 1e6"
    if text[at] in "&|!":
        return f"{text[at]} is not understood", "write and, or, not"
    return f"{text[at] if text[at].isprintable() else 'this'} is not understood", ""
