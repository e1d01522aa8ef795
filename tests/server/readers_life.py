"""Readers of what goes between their look-up and their reading, as a program of its own with Django
in this process.

Arguments: data folder, URL of the database or nothing, path of a file with the members of an
account. The answers to each reader go to stdout, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from encrypted_records.errors import ErsError
from encrypted_records.model.records import BlockRef, PageRef, RowRef
from tests.server.api import Account
from tests.server.erasure_steps import due, long_dead, prepare, until_quiet
from tests.server.standing_model import Model
from tests.server.test_compactions import compact, merge
from tests.server.writer import Writer, person

#: By name, what has looked up where its answer lies and has read none of it.
Readers = Mapping[str, Iterator[Any]]

_OLD = "2001-01-01 00:00:00+00:00"


def main(data_dir: str, database_url: str, credentials: str) -> None:
    _, account = prepare(data_dir, database_url, credentials)
    scenes: Sequence[Callable[[Model], dict[str, str]]] = (swept_pages, swept_rows, erased, lost)
    found: dict[str, str] = {}
    for scene in scenes:
        found |= scene(new_model(account))
    sys.stdout.write(json.dumps(found))


def new_model(account: Account) -> Model:
    """Two groups of three rows in one segment, which has replaced two."""
    model = Model(Writer(account, account.new_schema()))
    for _ in range(2):
        model.add([person() for _ in range(3)])
    return model


def swept_pages(model: Model) -> dict[str, str]:
    from encrypted_records.server.erasure import sweeping
    from encrypted_records.server.records.models import IndexSegment

    old = PageRef(model.segments[0].uid, 0)
    merge(model)
    readers = {"pages": pages(model, old), "digests of pages": digests(model, old)}
    assert IndexSegment.objects.exclude(superseded_at=None).update(superseded_at=_OLD) == 2
    assert sweeping.sweep()
    return answers(readers)


def swept_rows(model: Model) -> dict[str, str]:
    from encrypted_records.server.erasure import sweeping
    from encrypted_records.server.records.models import RecordGroup

    merge(model)
    old = model.groups[0].rows[0][0]
    compact(model, 0, 2)
    readers = {
        "rows": rows(model, old),
        "digests of rows": digests(model, old),
        "names of rows": names(model, old),
    }
    assert RecordGroup.objects.exclude(ended_at=None).update(ended_at=_OLD) == 2
    assert sweeping.sweep_rows()
    return answers(readers)


def erased(model: Model) -> dict[str, str]:
    """A row that is erased, and one that is proven with it."""
    other, gone = model.groups[0].rows[0][0], model.groups[0].rows[1][0]
    before = answer(digests(model, other))
    model.kill([gone])
    readers = {"an erased row": rows(model, gone), "a row beside it": digests(model, other)}
    long_dead(str(model.writer.schema["id"]))
    due(gone.group)
    assert until_quiet()
    found = answers(readers)
    return found | {"a row beside it": str(found["a row beside it"] == before)}


def lost(model: Model) -> dict[str, str]:
    """A page that nobody has swept, and that is not there."""
    from encrypted_records.server.records.models import IndexPage, IndexSegment

    ref = PageRef(model.segments[0].uid, 0)
    readers = {"a lost page": pages(model, ref)}
    number = IndexSegment.objects.get(uid=ref.segment).pk
    assert IndexPage.objects.filter(segment_id=number).delete()[0] == 1
    return answers(readers)


def pages(model: Model, ref: PageRef) -> Iterator[Any]:
    from encrypted_records.server.rows import queries

    return queries.pages(schema(model), [ref])


def rows(model: Model, ref: RowRef) -> Iterator[Any]:
    from encrypted_records.server.rows import queries

    return queries.rows(schema(model), [ref])


def digests(model: Model, ref: PageRef | RowRef) -> Iterator[Any]:
    from encrypted_records.server.rows import queries

    return queries.digests(schema(model), [ref])


def names(model: Model, ref: RowRef) -> Iterator[Any]:
    from encrypted_records.server.records import store
    from encrypted_records.server.records.models import RecordGroup
    from encrypted_records.server.rows import queries

    field, *_ = store.fields_of(RecordGroup.objects.get(uid=ref.group).fields)
    return queries.names(schema(model), [BlockRef(ref.group, 0, field)])


def schema(model: Model) -> Any:
    from encrypted_records.server.datasets.models import Schema

    return Schema.objects.get(pk=model.writer.schema["id"])


def answers(readers: Readers) -> dict[str, str]:
    return {name: answer(reader) for name, reader in readers.items()}


def answer(reader: Iterator[Any]) -> str:
    """The code of an error, or the body in hexadecimal digits."""
    from encrypted_records.server.http import bodies

    try:
        body: Any = bodies.stream(reader).streaming_content
    except ErsError as error:
        return error.reason
    return b"".join(body).hex()


if __name__ == "__main__":
    main(*sys.argv[1:])
