"""Section 15.4: the form of roster entries, and the names that their openings show."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

from tests.reference import Refused
from tests.reference.keys import info
from tests.reference.msgpack import pack, unpack

FOUND, INVITE, MEMBER, REMOVE, DATASET, PLACE = range(1, 7)
FORGET, LIST = 8, 9


class Malformed(Exception):
    pass


def _need(right: bool) -> None:
    if not right:
        raise Malformed


def _bytes(value: object, *sizes: int) -> None:
    _need(isinstance(value, bytes) and len(value) in sizes)


def _number(value: object, low: int, high: int) -> None:
    _need(isinstance(value, int) and low <= value <= high)


def _name(value: object) -> None:
    _need(isinstance(value, str) and 1 <= len(value) <= 254 and "\0" not in value)


def _slug(value: object) -> None:
    _need(isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,120}", value) is not None)


def _list(value: object, least: int, most: int) -> list[Any]:
    _need(isinstance(value, list) and least <= len(value) <= most)
    assert isinstance(value, list)
    return value


def _shares(value: object) -> None:
    for share in _list(value, 0, 1000):
        dataset, right, schemas = _list(share, 3, 3)
        _bytes(dataset, 16)
        _number(right, 1, 2)
        for schema in _list(schemas, 0, 16):
            _bytes(schema, 16)


_LATEST = 2**63 - 1


def check_content(kind: int, content: Any) -> None:
    """The form of each kind's content."""
    if kind == FOUND:
        keys, name, nonce = _list(content, 3, 3)
        _bytes(keys, 1249)
        _bytes(name, 32)
        _bytes(nonce, 32)
    elif kind == INVITE:
        one, member, name, expires, answer_key, shares, check = _list(content, 7, 7)
        _bytes(one, 16)
        _bytes(member, 0, 16)
        _bytes(name, 32)
        _number(expires, 0, _LATEST)
        _bytes(answer_key, 32)
        _shares(shares)
        _bytes(check, 32)
    elif kind == MEMBER:
        parts = _list(content, 10, 10)
        for at, low, high in ((1, 1, 2), (2, 1, 2), (8, 0, _LATEST)):
            _number(parts[at], low, high)
        _bytes(parts[0], 16)
        _bytes(parts[3], 32)
        for at, size in ((4, 1249), (5, 32), (6, 64), (7, 16)):
            _bytes(parts[at], 0, size)
        _shares(parts[9])
    elif kind == REMOVE:
        _bytes(_list(content, 1, 1)[0], 16)
    elif kind == DATASET:
        dataset, names, epoch, commitment, ends = _list(content, 5, 5)
        _bytes(dataset, 16)
        _bytes(names, 0, 32)
        _number(epoch, 1, 2**32 - 1)
        _bytes(commitment, 32)
        for end in _list(ends, 0, 2**32):
            schema, version, digest = _list(end, 3, 3)
            _bytes(schema, 16)
            _number(version, 0, _LATEST)
            _bytes(digest, 32)
    elif kind == FORGET:
        dataset, first = _list(content, 2, 2)
        _bytes(dataset, 16)
        _number(first, 1, 2**32 - 1)
    elif kind == LIST:
        dataset, listed = _list(content, 2, 2)
        _bytes(dataset, 16)
        _number(listed, 0, 1)
    else:
        for placement in _list(content, 1, 256):
            schema, dataset, names = _list(placement, 3, 3)
            _bytes(schema, 16)
            _bytes(dataset, 16)
            _bytes(names, 0, 32)


def commit_to(opening: bytes) -> bytes:
    return hashlib.sha256(info(b"opening") + opening).digest()


def conceal(kind: int, content: Any, salt: Callable[[], bytes]) -> tuple[Any, list[bytes]]:
    """A content with names in it, as it is signed; and the openings of these."""
    openings: list[bytes] = []

    def hide(*shown: Any) -> bytes:
        openings.append(pack([salt(), *shown]))
        return commit_to(openings[-1])

    if kind in (FOUND, INVITE, MEMBER):
        at = {FOUND: 1, INVITE: 2, MEMBER: 3}[kind]
        return [*content[:at], hide(content[at]), *content[at + 1 :]], openings
    if kind == DATASET:
        dataset, slug, name, *rest = content
        return [dataset, hide(slug, name) if slug else b"", *rest], openings
    if kind == PLACE:
        signed = [
            [schema, dataset, hide(slug, name, definition) if slug else b""]
            for schema, dataset, slug, name, definition in content
        ]
        return signed, openings
    return content, openings


#: In place of a name that was not shown; it equals itself alone.
Withheld = tuple[str, bytes]


def _shown(opening: bytes, members: int) -> list[Any]:
    try:
        parts = unpack(opening)
    except ValueError:
        raise Malformed from None
    salt, *shown = _list(parts, members + 1, members + 1)
    _bytes(salt, 16)
    if members > 1:
        _slug(shown[0])
    _name(shown[min(members, 2) - 1])
    if members > 2:
        _bytes(shown[2], 32)
    return shown


def reveal(kind: int, content: Any, openings: list[bytes]) -> Any:
    """A content as it is signed, with the names that were shown; Malformed."""
    known = {commit_to(opening): opening for opening in openings}
    _need(len(known) == len(openings))
    used: set[bytes] = set()

    def show(commitment: bytes, members: int) -> list[Any]:
        if not commitment:
            return ["", "", bytes(32)][:members]
        if commitment not in known:
            return [("withheld", commitment)] * members
        used.add(commitment)
        return _shown(known[commitment], members)

    if kind in (FOUND, INVITE, MEMBER):
        at = {FOUND: 1, INVITE: 2, MEMBER: 3}[kind]
        content = [*content[:at], *show(content[at], 1), *content[at + 1 :]]
    elif kind == DATASET:
        content = [content[0], *show(content[1], 2), *content[2:]]
    elif kind == PLACE:
        content = [[schema, dataset, *show(names, 3)] for schema, dataset, names in content]
    _need(used == known.keys())
    return content


def cut(body: bytes, openings: list[bytes], datasets: set[bytes]) -> list[bytes]:
    """Those of an entry's openings that concern some datasets."""
    kind, content = unpack(body)[6:]
    kept: list[bytes] = []
    if kind == FOUND:
        kept = [content[1]]
    elif kind in (INVITE, MEMBER):
        shares = content[5] if kind == INVITE else content[9]
        owns = kind == MEMBER and content[2] == 1
        if owns or any(share[0] in datasets for share in shares):
            kept = [content[2 if kind == INVITE else 3]]
    elif kind == DATASET:
        kept = [content[1]] if content[0] in datasets else []
    elif kind == PLACE:
        kept = [names for _, dataset, names in content if dataset in datasets]
    return [opening for opening in openings if commit_to(opening) in kept]


def read(body: bytes, openings: list[bytes]) -> list[Any]:
    """The members of an entry's body, with the names that were shown; Refused or Malformed."""
    try:
        parts = unpack(body)
    except ValueError:
        raise Malformed from None
    _need(isinstance(parts, list) and len(parts) > 0)
    _number(parts[0], 1, 2**32 - 1)
    if parts[0] != 2:
        raise Refused("unsupported")
    _list(parts, 8, 8)
    _, organization, number, previous, time, actor, kind, content = parts
    _bytes(organization, 16)
    _number(number, 1, 2**32 - 1)
    _bytes(previous, 32)
    _number(time, 0, _LATEST)
    _bytes(actor, 16)
    _number(kind, 1, 2**32 - 1)
    if kind > PLACE and kind not in (FORGET, LIST):
        raise Refused("unsupported")
    check_content(kind, content)
    return [*parts[:7], reveal(kind, content, openings)]
