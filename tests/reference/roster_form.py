"""Section 15.4: the form of roster entries."""

from __future__ import annotations

import re
from typing import Any

from tests.reference import Refused
from tests.reference.msgpack import unpack

FOUND, INVITE, MEMBER, REMOVE, DATASET, PLACE = range(1, 7)
FORGET = 8


class Malformed(Exception):
    pass


def _need(right: bool) -> None:
    if not right:
        raise Malformed


def _bytes(value: object, *sizes: int) -> None:
    _need(isinstance(value, bytes) and len(value) in sizes)


def _number(value: object, low: int, high: int) -> None:
    _need(isinstance(value, int) and low <= value <= high)


def _name(value: object, least: int) -> None:
    _need(isinstance(value, str) and least <= len(value) <= 254)


def _slug(value: object) -> None:
    _need(isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{0,120}", value) is not None)


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
        _name(name, 1)
        _bytes(nonce, 32)
    elif kind == INVITE:
        one, member, name, expires, answer_key, shares, check = _list(content, 7, 7)
        _bytes(one, 16)
        _bytes(member, 0, 16)
        _name(name, 1)
        _number(expires, 0, _LATEST)
        _bytes(answer_key, 32)
        _shares(shares)
        _bytes(check, 32)
    elif kind == MEMBER:
        parts = _list(content, 10, 10)
        for at, low, high in ((1, 1, 2), (2, 1, 2), (8, 0, _LATEST)):
            _number(parts[at], low, high)
        _bytes(parts[0], 16)
        _name(parts[3], 1)
        for at, size in ((4, 1249), (5, 32), (6, 64), (7, 16)):
            _bytes(parts[at], 0, size)
        _shares(parts[9])
    elif kind == REMOVE:
        _bytes(_list(content, 1, 1)[0], 16)
    elif kind == DATASET:
        dataset, slug, name, epoch, commitment, ends = _list(content, 6, 6)
        _bytes(dataset, 16)
        _slug(slug)
        _name(name, 0)
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
    else:
        for placement in _list(content, 1, 256):
            schema, dataset, slug, name, definition = _list(placement, 5, 5)
            _bytes(schema, 16)
            _bytes(dataset, 16)
            _slug(slug)
            _name(name, 0)
            _bytes(definition, 32)


def read(body: bytes) -> list[Any]:
    """The members of an entry's body; Refused or Malformed."""
    try:
        parts = unpack(body)
    except ValueError:
        raise Malformed from None
    _need(isinstance(parts, list) and len(parts) > 0)
    _number(parts[0], 1, 2**32 - 1)
    if parts[0] != 1:
        raise Refused("unsupported")
    _list(parts, 8, 8)
    _, organization, number, previous, time, actor, kind, content = parts
    _bytes(organization, 16)
    _number(number, 1, 2**32 - 1)
    _bytes(previous, 32)
    _number(time, 0, _LATEST)
    _bytes(actor, 16)
    _number(kind, 1, 2**32 - 1)
    if kind > PLACE and kind != FORGET:
        raise Refused("unsupported")
    check_content(kind, content)
    return list(parts)
