"""Entries about datasets and schemas: their keys' epochs, and where and under which names they are.

The API takes names and slugs of what is placed from here, and from nowhere else.
"""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.utils import timezone

from encrypted_records.errors import Conflict, Flaw, NotAllowed, StaleDefinition
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.model.roster import EntryBody
from encrypted_records.server.datasets.models import Dataset, Schema
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.organizations.roster_change import Change, plain, require
from encrypted_records.server.organizations.roster_tables import DatasetKey, Place, Shared
from encrypted_records.server.records.models import CommitLog

MAX_API_NAME = 200


def begin(change: Change, body: EntryBody, content: form.Dataset) -> None:
    """Name a dataset, and begin the next epoch of its keys where it states that; or end logs with
    the present epoch.

    Raises:
        BadInput: ``invalid_entry``.
        NotAllowed: ``owners_only``.
        Conflict: ``log_moved``, ``slug_taken``.
    """
    change.require_owner(body)
    name = ids.to_text(content.dataset)
    own = DatasetKey.objects.filter(organization=change.organization)
    named = _is_named(content.slug, content.name)
    present = own.filter(dataset=name).first()
    # One that was deleted has a name in the roster, which may still be freed.
    frees = present is not None and not named and content.epoch == present.epoch
    dataset = None if frees else change.require_dataset(name)
    epoch = present.epoch if present is not None else 0
    require(content.epoch in (epoch, epoch + 1), "an epoch follows the present one")
    if present is not None and content.epoch == epoch:
        same = bytes(present.commitment) == content.commitment
        require(same, "the present epoch is stated with another key")
    else:
        require(
            present is not None or own.count() < form.MAX_DATASETS,
            f"an organization has at most {form.MAX_DATASETS} datasets with keys",
        )
        change.begun.add(name)
    _require_ends(change, name, content)
    new = content.epoch != epoch
    DatasetKey.objects.update_or_create(
        dataset=name,
        defaults={
            "organization": change.organization,
            "epoch": content.epoch,
            "commitment": content.commitment,
            "placed": named,
            **({"since": body.number} if new else {}),
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


def _require_ends(change: Change, dataset: str, content: form.Dataset) -> None:
    """Check where logs are said to have stood when an epoch began; their schemas are locked. Of an
    epoch that begins now, that is where they stand.

    Raises:
        BadInput: ``invalid_entry``.
        Conflict: ``log_moved``, with the schemas.
    """
    ends = content.ends
    names = [ids.to_text(end.schema) for end in ends]
    require(len(set(names)) == len(names), "an entry states two heads of one log")
    placed = Place.objects.filter(organization=change.organization, dataset=dataset)
    there = set(placed.filter(schema__in=names).values_list("schema", flat=True))
    require(there == set(names), "an end is of a schema that is not placed in the dataset")
    moved = []
    for name, end in zip(names, ends, strict=True):
        schema = change.schemas.get(name)
        if schema is None or schema.dataset_id != dataset:
            moved.append((name, "is not there any more"))
        elif (end.version, end.digest) != (stood := _stood(schema, content.epoch)):
            moved.append((name, f"has a log that ends at version {stood[0]} by now"))
    if moved:
        raise Conflict(
            "records were stored since the stated ends of logs were read",
            code="log_moved",
            hint="read the logs of the schemas that are named, and sign the entry again",
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


def place(change: Change, body: EntryBody, content: list[form.Placement]) -> None:
    """Put schemas into their datasets under their names, or free their names.

    Raises:
        BadInput: ``invalid_entry``.
        NotAllowed: ``not_writer``.
        StaleDefinition: a schema without records has another definition by now.
        Conflict: ``schema_placed``, ``slug_taken``.
    """
    names = [ids.to_text(one.schema) for one in content]
    require(len(set(names)) == len(names), "an entry places one schema twice")
    for dataset in {ids.to_text(one.dataset) for one in content}:
        _require_writer(change, ids.to_text(body.actor), dataset)
        known = change.organization.dataset_keys.filter(dataset=dataset).exists()
        require(known, "an entry places schemas in a dataset that the roster does not have")
    for placement in content:
        _place(change, placement)
    placed = Place.objects.filter(organization=change.organization)
    require(
        placed.count() <= form.MAX_SCHEMAS,
        f"an organization places at most {form.MAX_SCHEMAS} schemas",
    )


def _require_writer(change: Change, actor: str, dataset: str) -> None:
    if change.is_owner(actor):
        return
    whole = Shared.objects.filter(
        organization=change.organization, member=actor, dataset=dataset, schema=None, writes=True
    )
    if not whole.exists():
        raise NotAllowed("only writers of the whole dataset place schemas", code="not_writer")


def _place(change: Change, placement: form.Placement) -> None:
    name, dataset = ids.to_text(placement.schema), ids.to_text(placement.dataset)
    named = _is_named(placement.slug, placement.name)
    before = Place.objects.filter(schema=name).first()
    schema = change.schemas.get(name)
    elsewhere = before is not None and (
        before.organization_id != change.organization.pk or before.dataset != dataset
    )
    if elsewhere:
        raise placed_elsewhere()
    if schema is None:
        # It was deleted; its name may still be freed.
        require(before is not None and not named, "an entry places a schema that is not there")
    else:
        own = schema.dataset.organization_id == change.organization.pk
        require(own and schema.dataset_id == dataset, "an entry places a schema of elsewhere")
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
        "a schema with records, or one that the roster places, stays in its dataset",
        code="schema_placed",
        hint="make a schema in the other dataset, and store the records there",
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
            "another one has this slug already",
            code="slug_taken",
            hint="choose another slug",
        ) from None
