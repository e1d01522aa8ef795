"""Slugs: short names for addresses, made from the name where none is given."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from django.db.models import Model, QuerySet
from django.utils.text import slugify

MAX_SLUG = 120
_ROOM_FOR_NUMBER = 20


def slug_of(name: str, fallback: str) -> str:
    """The slug for a name; ``fallback`` if nothing of the name can be used in a slug."""
    return slugify(name)[: MAX_SLUG - _ROOM_FOR_NUMBER].strip("-") or fallback


def free_slug(siblings: QuerySet[Model], name: str, fallback: str) -> str:
    """The first of ``name``, ``name-2``, ``name-3`` ... that no sibling has."""
    base = slug_of(name, fallback)
    taken = set(siblings.filter(slug__startswith=base).values_list("slug", flat=True))
    return next(slug for slug in _candidates(base) if slug not in taken)


def random_slug(_siblings: QuerySet[Model], name: str, fallback: str) -> str:
    """``name`` with a random ending, so that two requests do not make the same slug."""
    return f"{slug_of(name, fallback)}-{secrets.token_hex(4)}"


def _candidates(base: str) -> Iterator[str]:
    yield base
    number = 2
    while True:
        yield f"{base}-{number}"
        number += 1
