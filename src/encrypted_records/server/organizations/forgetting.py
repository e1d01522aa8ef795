"""An entry by which older keys of a dataset are forgotten: nothing may be left that they open.

That is what the entry promises, so it is looked at here, under the locks of all schemas of the
dataset, and not taken from who signs it. What stands in the way is named.
"""

from __future__ import annotations

from collections.abc import Iterator

from encrypted_records.errors import Conflict, Flaw
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.model.roster import EntryBody
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.erasure import remains, unstaging
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.organizations.roster_change import Change, invalid, require
from encrypted_records.server.organizations.roster_tables import DatasetKey, StoredGrant
from encrypted_records.server.records.models import CommitLog


def forget(change: Change, body: EntryBody, content: form.Forget) -> None:
    """Keep no grant of epochs before the one that the entry names.

    Raises:
        BadInput: ``invalid_entry``.
        NotAllowed: ``owners_only``.
        Conflict: ``epoch_in_use``, with the schemas.
    """
    change.require_owner(body)
    name = ids.to_text(content.dataset)
    dataset = change.require_dataset(name)
    # Who stages waits for this, or the other way round.
    key = DatasetKey.objects.select_for_update().filter(dataset=name).first()
    if key is None:
        raise invalid("an entry forgets keys of a dataset without any")
    require(key.first < content.first <= key.epoch, "the epoch is forgotten, or has not begun")
    _require_nothing(_schemas_of(change, name), content.first)
    DatasetKey.objects.filter(dataset=name).update(first=content.first, since=body.number)
    # All that hold one get another with this request; of those who hold nothing any more, none is
    # left.
    StoredGrant.objects.filter(organization=change.organization, dataset=name).delete()
    change.begun.add(name)
    change.note(Action.DATASET_FORGOT, dataset.url)


def _schemas_of(change: Change, dataset: str) -> list[Schema]:
    """All schemas of the dataset, which are locked; what merges have left there goes before.

    Raises:
        Conflict: ``roster_moved``; one was made meanwhile.
    """
    own = list(Schema.objects.filter(dataset=dataset).values_list("pk", flat=True))
    if not change.schemas.keys() >= set(own):
        raise Conflict(
            "a schema was made in the dataset meanwhile",
            code="roster_moved",
            hint="read the roster to its end, and sign the entry again",
        )
    schemas = [change.schemas[one] for one in own]
    for schema in schemas:
        sealed = CommitLog.objects.filter(schema=schema, version=schema.resealed_at).first()
        if sealed is not None:
            unstaging.drop_stale_merges(schema, sealed.created)
    return schemas


def _require_nothing(schemas: list[Schema], first: int) -> None:
    flaws = tuple(Flaw("epoch_in_use", text) for text in _obstacles(schemas, first))
    if flaws:
        raise Conflict(
            "older keys of the dataset are still needed",
            code="epoch_in_use",
            hint="seal the schemas that are named again, and wait until what they had before is"
            " gone; then repeat it",
            flaws=flaws,
        )


def _obstacles(schemas: list[Schema], first: int) -> Iterator[str]:
    for schema in schemas:
        for what in remains.of_older_keys(schema, first):
            yield f"{schema.url} {what}"
