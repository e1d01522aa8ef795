"""Whose dead rows go next: schemas take turns, so that who deletes much keeps nobody waiting."""

from __future__ import annotations

from django.db.models import Exists, F, OuterRef, QuerySet
from django.utils import timezone

from encrypted_records.server.records.models import AskedErasure, RecordGroup


class Turn:
    """Whether the last turn was of those that somebody waits for, and the schemas served last."""

    asked = False
    of_asked: str | None = None
    of_all: str | None = None


turn = Turn()


def next_due() -> RecordGroup | None:
    """A group whose time is over; every other one is of a schema for which somebody waits, if there
    is such a schema. No question here takes a lock."""
    due = RecordGroup.objects.filter(erase_at__lte=timezone.now(), staging=None, ended_at=None)
    due = due.order_by("schema", "erase_at")
    waited_for = Exists(AskedErasure.objects.filter(schema=OuterRef("schema"), done__lt=F("up_to")))
    turn.asked = not turn.asked
    group = _after(due.filter(waited_for), turn.of_asked) if turn.asked else None
    if group is not None:
        turn.of_asked = group.schema_id
        return group
    group = _after(due, turn.of_all)
    if group is not None:
        turn.of_all = group.schema_id
    return group


def _after(due: QuerySet[RecordGroup], served: str | None) -> RecordGroup | None:
    after = due if served is None else due.filter(schema__gt=served)
    return after.first() or due.first()
