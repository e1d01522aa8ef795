"""Entries about datasets and schemas: their keys' epochs, and where and under which names they are.

The API takes names and slugs of what is placed from here, and from nowhere else.
"""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.utils import timezone

from encrypted_records.errors import Conflict, Flaw, StaleDefinition
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.server.datasets.models import Dataset, Schema
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.organizations.roster_change import RosterChange, plain, require
from encrypted_records.server.organizations.roster_tables import DatasetKey, Place
from encrypted_records.server.records.models import CommitLog

MAX_API_NAME = 200


def begin(change: RosterChange, content: form.DatasetName) -> None:
    """Name a dataset, and begin the next epoch of its keys where it states that; or end logs with
    the present epoch.

    Raises:
        BadInput: ``invalid_entry``.
        Conflict: ``log_moved``, ``slug_taken``.
    """
    name = ids.to_text(content.dataset)
    named = _is_named(content.slug, content.name)
    epoch = len(change.state.epochs.get(content.dataset, ()))
    new = content.epoch != epoch
    # One that was deleted has a name in the roster, which may still be freed.
    dataset = change.require_dataset(name) if named or new else None
    if new:
        change.begun.add(name)
    require_ends(change, content)
    DatasetKey.objects.update_or_create(
        dataset=name,
        defaults={
            "organization": change.organization,
            "epoch": content.epoch,
            "placed": named,
        },
    )
    if named and dataset is not None:
        _rename(dataset, content.slug, content.name)
    url = ids.reference("datasets", content.dataset)
    change.note(Action.DATASET_KEY if new else Action.DATASET_CHANGED, url)


def _is_named(slug: str, name: str) -> bool:
    """
    Raises:
        BadInput: ``invalid_entry``; the name is too long.
    """
    plain(name, MAX_API_NAME)
    return bool(slug)


def require_ends(change: RosterChange, content: form.DatasetName) -> None:
    """Check where logs are said to have stood when an epoch began; their schemas are locked. Of an
    epoch that begins now, that is where they stand.

    Raises:
        Conflict: ``log_moved``, with the schemas.
    """
    dataset = ids.to_text(content.dataset)
    moved = []
    for end in content.ends:
        name = ids.to_text(end.schema)
        schema = change.schemas.get(name)
        if schema is None or schema.dataset_id != dataset:
            moved.append((name, "no longer exists"))
        elif (end.version, end.digest) != (stood := _stood(schema, content.epoch)):
            moved.append((name, f"has a log that now ends at version {stood[0]}"))
    if moved:
        raise Conflict(
            "records were stored after the stated ends of logs were read",
            code="log_moved",
            hint="read the logs of the named schemas, and sign the entry again",
            flaws=tuple(
                Flaw("log_moved", f"{ids.reference('schemas', name)} {what}")
                for name, what in moved
            ),
        )


def _stood(schema: Schema, epoch: int) -> tuple[int, bytes]:
    """Version and digest of a log behind its last commit of an epoch before this one."""
    if schema.key_version is None or schema.key_version < epoch:
        return schema.version, bytes(schema.log_digest)
    version = schema.key_since - 1
    before = CommitLog.objects.filter(schema=schema, version=version).values_list("log_digest")
    return version, bytes(before.get()[0]) if version else form.NO_DIGEST


def place(change: RosterChange, content: list[form.Placement]) -> None:
    """Put schemas into their datasets under their names, or free their names.

    Raises:
        BadInput: ``invalid_entry``.
        StaleDefinition: a schema without records has another definition by now.
        Conflict: ``slug_taken``.
    """
    for placement in content:
        _place(change, placement)


def _place(change: RosterChange, placement: form.Placement) -> None:
    name, dataset = ids.to_text(placement.schema), ids.to_text(placement.dataset)
    named = _is_named(placement.slug, placement.name)
    schema = change.schemas.get(name)
    if schema is None:
        # It was deleted; its name may still be freed.
        known = placement.schema in change.state.schemas
        require(known and not named, "an entry places a schema that does not exist")
    else:
        require(schema.dataset_id == dataset, "an entry places a schema of another organization")
        if named:
            _take_name(schema, placement)
        change.note(Action.SCHEMA_CHANGED, schema.url)
    Place.objects.update_or_create(
        schema=name,
        defaults={"organization": change.organization, "dataset": dataset, "placed": named},
    )


def _take_name(schema: Schema, placement: form.Placement) -> None:
    if schema.version == 0 and placement.definition != bytes(schema.definition_digest):
        raise StaleDefinition("the schema's definition is not the one that the entry states")
    _rename(schema, placement.slug, placement.name)


def placed_elsewhere() -> Conflict:
    return Conflict(
        "a schema that has records, or is in the roster, cannot change its dataset",
        code="schema_placed",
        hint="create a schema in the other dataset, and store the records there",
    )


def _rename(named: Dataset | Schema, slug: str, name: str) -> None:
    """
    Raises:
        Conflict: ``slug_taken``.
    """
    if (named.slug, named.name) == (slug, name):
        return
    named.slug, named.name, named.modified = slug, name, timezone.now()
    try:
        with transaction.atomic():
            named.save(update_fields=["slug", "name", "modified"])
    except IntegrityError:
        raise Conflict(
            "another one already has this slug",
            code="slug_taken",
            hint="choose another slug",
        ) from None
