"""Hostile bytes: good ones cut, flipped, spliced and lied about, and bytes out of nowhere.

Three kinds of damage, for what the other side could send: to bytes, to values inside a MessagePack
text that stays well-formed, and to tokens inside a JSON text. Only the last two get far into a
parser.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

Edit = Callable[[bytes, int, int, bytes], bytes]
_EDGES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**63)


def _truncate(data: bytes, at: int, _: int, __: bytes) -> bytes:
    return data[:at]


def _flip(data: bytes, at: int, number: int, _: bytes) -> bytes:
    return data[:at] + bytes((data[at] ^ (1 << number % 8),)) + data[at + 1 :] if data else data


def _remove(data: bytes, at: int, number: int, _: bytes) -> bytes:
    return data[:at] + data[at + number % 24 :]


def _repeat(data: bytes, at: int, number: int, _: bytes) -> bytes:
    return data[:at] + data[at : at + number % 24] + data[at:]


def _insert(data: bytes, at: int, _: int, other: bytes) -> bytes:
    return data[:at] + other + data[at:]


def _splice(data: bytes, at: int, number: int, other: bytes) -> bytes:
    """The beginning of one with the end of another."""
    return data[:at] + other[number % (len(other) + 1) :]


def _lie(data: bytes, at: int, number: int, _: bytes) -> bytes:
    """An edge in place of a number of 1, 2, 4 or 8 bytes, which may be a length."""
    size = 1 << number % 4
    edge = _EDGES[number // 4 % len(_EDGES)] % (1 << 8 * size)
    return data[:at] + edge.to_bytes(size, "big") + data[at + size :]


_EDITS: list[Edit] = [_truncate, _flip, _remove, _repeat, _insert, _splice, _lie]


@st.composite
def damaged(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """A seed after one to four edits."""
    data = draw(st.sampled_from(seeds))
    other = st.one_of(st.sampled_from(seeds), st.binary(max_size=12))
    for _ in range(draw(st.integers(1, 4))):
        edit = draw(st.sampled_from(_EDITS))
        at, number = draw(st.integers(0, 2**16)), draw(st.integers(0, 255))
        at %= max(1, len(data) + (edit in (_insert, _splice)))
        data = edit(data, at, number, draw(other))
    return data


def raw(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    return st.one_of(damaged(seeds), st.binary(max_size=200))


# --- inside MessagePack ------------------------------------------------------------------------

_VALUES: list[Any] = [
    *(None, True, 0, 1, -1, 2, 4096, 4097, 2**20, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**64 - 1),
    *(-(2**31), -(2**63), 0.5, float("nan"), "", "mini", "paged", "age", "x" * 300),
    *(b"", bytes(8), bytes(16), bytes(32), [], [[]], {}, [[bytes(16), 0]], [[0, 2**32 - 1]]),
    *([[0, -1], [0, 6]], [[0, 3], [0, 2]], [[2**64 - 1, 5]], [[bytes(16), 0], [bytes(16), 5]]),
]


def _places(tree: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    yield path
    if isinstance(tree, list):
        for at, part in enumerate(tree):
            yield from _places(part, (*path, at))


def _at(tree: Any, path: tuple[int, ...]) -> Any:
    for step in path:
        tree = tree[step]
    return tree


def _put(tree: Any, path: tuple[int, ...], change: Callable[[Any], list[Any]]) -> Any:
    """The tree with what ``change`` makes of one place in that place: none, one, or several."""
    if not path:
        return (change(tree) or [None])[0]
    step, *rest = path
    if rest:
        return [*tree[:step], _put(tree[step], tuple(rest), change), *tree[step + 1 :]]
    return [*tree[:step], *change(tree[step]), *tree[step + 1 :]]


#: Becomes bytes that are no UTF-8 once the text around it is encoded.
_NO_TEXT, _BROKEN = "\ue000", b"\xff\xff\xff"


def _alike(old: Any, others: Sequence[Any]) -> list[Any]:
    """Values that get as far as the old one did: of its type, and of its length."""
    match old:
        case bool() | None:
            return [not old]
        case int():
            return [0, 1, min(old + 1, 2**64 - 1), max(0, old - 1), 2**32 - 1]
        case str():
            return ["", "mini", "paged", _NO_TEXT, old + "x", "age"]
        case bytes():
            same = [
                other for other in others if isinstance(other, bytes) and len(other) == len(old)
            ]
            return [bytes(len(old)), *same]
        case list():
            return [[], old[::-1], old[1:], old * 2, *(other for other in others if other != old)]
    return _VALUES


def _giving(made: list[Any]) -> Callable[[Any], list[Any]]:
    return lambda _: made


@st.composite
def restructured(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """A seed of MessagePack with one or two of its values replaced, left out or doubled."""
    tree = msgspec.msgpack.decode(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.sampled_from([1, 1, 2]))):
        places = list(_places(tree))
        path = places[draw(st.integers(0, 2**16)) % len(places)]
        old = _at(tree, path)
        how = draw(st.sampled_from(["alike", "alike", "alike", "any", "leave out", "double"]))
        made = {"leave out": [], "double": [old, old]}.get(how)
        if made is None:
            others = [_at(tree, place) for place in places]
            choice = _VALUES if how == "any" else _alike(old, others)
            made = [draw(st.sampled_from(choice))]
        tree = _put(tree, path, _giving(made))
    return msgspec.msgpack.encode(tree).replace(_NO_TEXT.encode(), _BROKEN)


def msgpack(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    return st.one_of(restructured(seeds), restructured(seeds), raw(seeds))


# --- inside JSON -------------------------------------------------------------------------------

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')
_TOKENS = [
    *(b"null", b"true", b"0", b"-0", b"-1", b"0.5", b"1e400", b"1e-400", b"1" * 401, b"9" * 399),
    *(b"1e999999999999999999", b"-1e-999999999", b"1E+99999999", b"NaN", b"-Infinity", b"01"),
    *(b"18446744073709551616", b"0.1e1", b"1e60", b"-1e60", b"2147483649", b"[]", b"{}", b'""'),
    *(b'"\\ud800"', b'"\\u0000"', b'"\xff"', b'"e\\u0301"', b'"(?=a)"', b'"(a{1000}){1000}"'),
    *(b'"' + b"x" * 300 + b'"', b"]", b"}", b","),
    *(b'"age"', b'"city"', b'"minimum"', b'"maximum"', b'"precision"', b'"multipleOf"', b'"enum"'),
    *(b'"const"', b'"pattern"', b'"minLength"', b'"required"', b'"integer"', b'"string"'),
    *(b'"and"', b'"not"', b'"in"', b'"prefix"', b'"between"', b'"field"', b'"op"', b'"value"'),
]


#: What is not one more value but a trap of its own.
_TRAPS = [
    *(b"[" * 5000, b'{"a":' * 3000, b'{"a":1,"a":2}', b"1" * 401, b"1e999999999999999999", b"NaN"),
    *(b'"\\ud800"', b'{"\\ud800":1}', b'"\xff"', b"-1e-999999999", b"1E+99999999"),
]


@st.composite
def retold(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """A seed of JSON with one to three of its tokens replaced."""
    tokens = _TOKEN.findall(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, 2**16)) % len(tokens)
        choice = draw(st.sampled_from([_TOKENS, tokens, _TRAPS]))
        tokens[at] = draw(st.sampled_from(choice))
    return b" ".join(tokens)


def json_text(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    return st.one_of(retold(seeds), retold(seeds), raw(seeds))
