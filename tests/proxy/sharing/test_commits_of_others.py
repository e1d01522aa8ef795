"""An API adds what somebody signed who may not write: a reader with a proxy that does not mind, and
a writer who lost the right, with what they made before."""

from __future__ import annotations

import json

import msgspec
import pytest

from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from encrypted_records.model.records import Commit, CommitUpload, LogEntry, ManifestDelta
from encrypted_records.proxy.schemas import states
from tests.proxy.lies import each, on
from tests.proxy.sharing.people import Person
from tests.proxy.sharing.shared import Shared, numbers, refused
from tests.support.front import Asked, Lie, Reply, nothing
from tests.support.service import Answer, call
from tests.support.store import Store

CONFLICT = {"type": "about:blank", "status": 409, "code": "record_changed", "detail": "x"}


def kept_back(shared: Shared, person: Person, store: Store) -> bytes:
    """What somebody's proxy sends to store a record; the API keeps it and refuses it."""
    kept: list[bytes] = []
    front = shared.fronts[person.id]

    def keep(asked: Asked) -> Reply | None:
        if asked.path != "/api/commits/":
            return None
        kept.append(asked.body)
        kind = {"Content-Type": "application/problem+json"}
        return Reply(409, kind, json.dumps(CONFLICT).encode())

    front.invent = keep
    assert store.send([{"n": 9}]).status == 409
    front.invent = nothing
    (body,) = kept
    return body


def added(body: bytes) -> Lie:
    """An API whose log has this commit at its end."""
    frames = wire.decode(body)
    commit = next(
        frame.commit if isinstance(frame, CommitUpload) else frame
        for frame in frames
        if isinstance(frame, Commit | CommitUpload)
    )

    def taken(delta: ManifestDelta) -> ManifestDelta:
        entry = LogEntry(delta.version + 1, commit)
        return msgspec.structs.replace(
            delta, version=entry.version, entries=[*delta.entries, entry]
        )

    return on(("manifest",), each(ManifestDelta, taken))


def send(person: Person, body: bytes) -> Answer:
    """To the API itself, with the person's own credentials."""
    url = f"{person.service.base_url}/api/commits/"
    kind = {"Content-Type": wire.MEDIA_TYPE}
    return call("POST", url, body, auth=person.account.auth, headers=kind)


def require_nobody_follows(shared: Shared, body: bytes) -> None:
    """Neither proxies that know the log up to there, nor one that starts."""
    everybody = [shared.team.ada, shared.person(form.WRITER)]
    stores = [shared.proxy(everybody[0]), shared.proxy(everybody[1])]
    assert [numbers(store) for store in stores] == [[1], [1]]
    late = shared.person(form.READER)
    for person, store in [*zip(everybody, stores, strict=True), (late, shared.proxy(late))]:
        with shared.fronts[person.id].telling(added(body)):
            assert refused(store.ask()) == (422, "log_broken")
            assert store.send([{"n": 3}]).status >= 400
        assert numbers(store) == [1]


def test_a_readers_commit_counts_nowhere_whatever_their_proxy_and_the_api_do(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.proxy(shared.team.ada).ingest([{"n": 1}])
    reader = shared.person(form.READER)
    store = shared.proxy(reader)
    assert numbers(store) == [1]
    assert refused(store.send([{"n": 9}])) == (403, "not_writer")
    with monkeypatch.context() as patched:
        patched.setattr(states, "require_writer", lambda *_: None)
        body = kept_back(shared, reader, store)
    assert send(reader, body).status == 403
    require_nobody_follows(shared, body)


def test_what_a_writer_made_counts_no_more_once_nothing_is_shared_with_them(shared: Shared) -> None:
    owner = shared.proxy(shared.team.ada)
    owner.ingest([{"n": 1}])
    writer = shared.person(form.WRITER)
    store = shared.proxy(writer)
    assert numbers(store) == [1]
    body = kept_back(shared, writer, store)
    path = f"{shared.team.made['url']}people/{ids.to_text(writer.id)}/"
    made = owner.proxy("DELETE", path)
    assert (made.status, made.json().get("rotated")) == (200, ["People"]), made.body
    assert send(writer, body).status in (403, 404, 409)
    # The roster says where the log stood when they lost the right: it comes too late.
    require_nobody_follows(shared, body)


def test_who_was_removed_begins_no_log_that_was_empty(shared: Shared) -> None:
    """Of a schema that was signed, and that nobody stored into."""
    owner = shared.proxy(shared.team.ada)
    seen = owner.proxy("POST", f"{shared.schema}sign/", {"dry_run": True}).json()["shown"]
    assert owner.proxy("POST", f"{shared.schema}sign/", {"seen": seen}).json()["applied"]
    writer = shared.person(form.WRITER)
    store = shared.proxy(writer)
    body = kept_back(shared, writer, store)
    removed = shared.put_out(owner, writer)
    assert (removed.status, removed.json()["rotated"]) == (200, ["People"]), removed.body
    assert send(writer, body).status in (403, 404, 409)
    late = shared.person(form.READER)
    for person, reading in ((shared.team.ada, owner), (late, shared.proxy(late))):
        with shared.fronts[person.id].telling(added(body)):
            assert refused(reading.ask()) == (422, "log_broken")
        assert numbers(reading) == []
