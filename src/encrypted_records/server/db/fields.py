"""Identifiers and slugs, in the database and in requests.

There is one kind of identifier. In Python and outside, it is a text of 22 characters; in the
database 16 bytes, which sort by creation time. A slug is a short name for addresses, derived from
the name if none is given.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, QuerySet
from django.utils.text import slugify
from rest_framework import serializers
from rest_framework.request import Request

from encrypted_records.errors import BadInput, Flaw, Malformed
from encrypted_records.listening.binding import same_machine
from encrypted_records.model import ids

if TYPE_CHECKING:  # at run time the class takes no parameters
    _Column = models.Field[str, str]
    _OptionalColumn = models.Field[str | None, str | None]
else:
    _Column = _OptionalColumn = models.Field


def new_id() -> str:
    return ids.to_text(ids.new_id())


def as_stored(identifier: str) -> bytes:
    """An id as the database stores it; for an invalid id, a value that no row has."""
    try:
        return ids.from_text(identifier)
    except Malformed:
        return b""


class _Identifier:
    """Shared behaviour of columns that hold identifiers."""

    def get_internal_type(self) -> str:
        return "BinaryField"

    def from_db_value(self, value: Any, *_: Any) -> str | None:
        return None if value is None else ids.to_text(bytes(value))

    def to_python(self, value: Any) -> Any:
        return ids.to_text(bytes(value)) if isinstance(value, bytes | memoryview) else value

    def get_prep_value(self, value: Any) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        try:
            return ids.from_text(str(value))
        except Malformed as error:
            # Django and REST framework take ValueError for "there is no such row".
            raise ValueError(error.message) from None

    def get_db_prep_value(
        self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False
    ) -> Any:
        return value if prepared else self.get_prep_value(value)


class ShortIdField(_Identifier, _Column):
    """A column of identifiers."""


class OptionalIdField(_Identifier, _OptionalColumn):
    """A nullable column of identifiers."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "null": True})


def own_hosts(request: Request) -> tuple[str, ...]:
    """The origins of our absolute URLs: that of the request, and the public origin of the proxy."""
    origin = f"{request.scheme}://{request.get_host()}"
    return (*same_machine(origin), *same_machine(settings.PUBLIC_URL))


def identifier(request: Request, value: object, collection: str, *, parameter: str) -> str:
    """The id in ``value``: a path, an absolute URL of ours, or the bare id.

    Raises:
        BadInput: it is none of these.
    """
    try:
        uid = ids.from_reference(value, collection, pointer="", own_hosts=own_hosts(request))
    except BadInput as error:
        flaw = Flaw("invalid_reference", error.message, parameter=parameter)
        raise BadInput(error.message, flaws=(flaw,)) from None
    return ids.to_text(uid)


class ReferenceField(serializers.RelatedField[Any, Any, str]):
    """A reference as its path; only resources that the caller can reach are accepted.

    The serializer's ``reachable(collection)`` returns these.
    """

    default_error_messages = {
        "invalid_reference": "expected a path of the form /api/{collection}/<id>/, or the id",
        "unknown_reference": "names nothing that you can reach",
    }

    def __init__(self, collection: str, **options: Any) -> None:
        self.collection = collection
        if not options.get("read_only"):
            options["queryset"] = models.QuerySet()  # the real queryset depends on the caller
        super().__init__(**options)

    def use_pk_only_optimization(self) -> bool:
        return True

    def to_internal_value(self, data: object) -> Any:
        request = self.context["request"]
        try:
            wanted = ids.from_reference(
                data, self.collection, pointer="", own_hosts=own_hosts(request)
            )
        except BadInput:
            self.fail("invalid_reference", collection=self.collection)
        resource = self.context["reachable"](self.collection).filter(pk=wanted).first()
        if resource is None:
            self.fail("unknown_reference")
        return resource

    def to_representation(self, value: Any) -> str:
        return ids.reference(self.collection, value.pk)


# Slugs.

MAX_SLUG = 120
_ROOM_FOR_NUMBER = 20


def slug_of(name: str, fallback: str) -> str:
    """The slug for a name; ``fallback`` if no character of the name can be used."""
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
