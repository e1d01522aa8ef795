"""A new proxy begins with a checkpoint that somebody has signed who may write; others it refuses.

Whatever is wrong with one costs time, is named, and is never an answer.
"""

from __future__ import annotations

import logging
import re
import shutil
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from encrypted_records.errors import ErsError
from encrypted_records.model import ids, wire
from encrypted_records.model import roster as form
from encrypted_records.model.records import ManifestDelta
from encrypted_records.model.wire import Checkpoint
from encrypted_records.proxy.process import CHECKPOINTING
from encrypted_records.proxy.sharing.settling import Sharing
from tests.proxy.sharing.people import Person
from tests.proxy.sharing.shared import Shared, numbers, refused
from tests.support.front import Asked, Front, Reply
from tests.support.proxies import settle_all
from tests.support.store import Store


def listed(store: Store) -> list[dict[str, Any]]:
    answer = store.api("GET", f"{store.schema}checkpoints/")
    assert answer.status == 200, answer.body
    found: list[dict[str, Any]] = answer.json()
    return found


def written(store: Store, version: int, key_version: int = 1) -> Checkpoint:
    """The API's newest, of this version at least, once proxies have written what is due."""
    settle_all(CHECKPOINTING)
    assert any(_is(one, version, key_version) for one in listed(store))
    answer = store.api("GET", f"{store.schema}manifest/?since=0&checkpoint=0")
    first, *rest = wire.decode(answer.body)
    assert isinstance(first, Checkpoint)
    assert all(isinstance(one, ManifestDelta) for one in rest)
    return first


def _is(one: dict[str, Any], version: int, key_version: int) -> bool:
    return bool(one["version"] >= version and one["key_version"] == key_version)


def stored(store: Store, *numbers: int) -> None:
    for n in numbers:
        store.ingest([{"n": n}])


class Watch:
    """What answers with a checkpoint held, and what a test puts in its place."""

    def __init__(self, replace: Callable[[Checkpoint], Checkpoint] = lambda one: one) -> None:
        self.replace = replace
        #: checkpoints that were handed out, and the versions of the commits after each
        self.handed: list[tuple[Checkpoint, list[int]]] = []

    def __call__(self, asked: Asked, reply: Reply) -> Reply:
        if "checkpoint=" not in asked.path or reply.status != 200:
            return reply
        items = list(wire.decode(reply.body))
        if not isinstance(items[0], Checkpoint):
            return reply
        items[0] = self.replace(items[0])
        deltas = [item for item in items if isinstance(item, ManifestDelta)]
        versions = [entry.version for delta in deltas for entry in delta.entries]
        self.handed.append((items[0], versions))
        return reply.with_body(wire.encode(items))


def always(one: Checkpoint) -> Callable[[Checkpoint], Checkpoint]:
    return lambda _: one


def since(front: Front) -> list[int]:
    """From which versions on the API was asked for the log alone."""
    found = [re.search(r"/manifest/\?since=(\d+)$", asked.path) for asked in front.asked]
    return [int(match[1]) for match in found if match]


def test_a_new_proxy_begins_with_a_checkpoint_and_the_log_after_it(shared: Shared) -> None:
    ada = shared.proxy(shared.team.ada, checkpoints=3)
    stored(ada, 1, 2, 3)
    first = wire.decode_checkpoint_body(written(ada, 3))
    grace = shared.person(form.WRITER)
    stored(ada, 4)
    theirs = shared.proxy(grace)
    watch = Watch()
    with shared.fronts[grace.id].telling(watch):
        assert numbers(theirs) == [1, 2, 3, 4]
    [(handed, after)] = watch.handed
    assert wire.decode_checkpoint_body(handed) == first
    assert first.member == shared.team.ada.id
    assert after == [4]
    assert since(shared.fronts[grace.id]) == []
    # What is stored from there on continues the log for those who have all of it.
    theirs.ingest([{"n": 5}])
    made = theirs.found({"field": "n", "op": "eq", "value": 2})
    assert theirs.proxy("DELETE", f"/api/records/{made[0]}/").status == 204
    assert numbers(ada) == numbers(theirs) == [1, 3, 4, 5]


def signed(shared: Shared, person: Person, body: wire.CheckpointBody) -> Checkpoint:
    """What somebody who has the keys, and no scruples, signs with an identity of their own."""
    schema = ids.from_text(shared.schema.split("/")[-2])

    async def act(sharing: Sharing) -> Checkpoint:
        view = await sharing.reader.read(person.holder, shared.team.organization)
        assert view is not None
        opened = await sharing.grants.open(view, shared.team.dataset, newest=False)
        encoded = wire.encode_checkpoint_body(body)
        mac = opened.schema(schema, body.key_version).checkpoint.compute(encoded)
        bare = Checkpoint(encoded, mac, b"")
        signature = view.identity.sign("checkpoint", wire.checkpoint_digest(bare))
        return Checkpoint(bare.body, bare.mac, signature)

    return person.do(act)


def test_no_lie_about_a_checkpoint_is_believed_and_each_is_named(
    shared: Shared, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ada = shared.proxy(shared.team.ada, checkpoints=3)
    reader, mallory = shared.person(form.READER), shared.person(form.WRITER)
    stored(ada, 1, 2, 3)
    honest = written(ada, 3)
    assert shared.put_out(ada, mallory).status == 200
    stored(ada, 4, 5, 6, 7)
    newer = written(ada, 4, key_version=2)
    body = wire.decode_checkpoint_body(newer)
    by_reader = signed(shared, reader, msgspec.structs.replace(body, member=reader.id))
    # Somebody who was removed has the new key from somebody who reads, and dates it back.
    behind = signed(shared, reader, msgspec.structs.replace(body, member=mallory.id))
    altered = bytearray(newer.body)
    altered[-40] ^= 1
    lies: dict[str, Checkpoint] = {
        "an older epoch": honest,
        "a removed writer under the new epoch": behind,
        "a reader": by_reader,
        "altered": msgspec.structs.replace(newer, body=bytes(altered)),
        "another schema": signed(
            shared, shared.team.ada, msgspec.structs.replace(body, schema=ids.new_id())
        ),
        "a later version": signed(
            shared, shared.team.ada, msgspec.structs.replace(body, version=body.version + 1)
        ),
    }
    numbers(shared.proxy(reader))
    for at, (name, lie) in enumerate(lies.items()):
        caplog.clear()
        fresh = shutil.copytree(reader.folder.parent, tmp_path / f"fresh{at}")
        for kept in ("heads", "ledgers"):
            (fresh / "proxy" / f"{kept}.sqlite3").unlink()
        theirs = shared.proxy(reader, folder=fresh)
        front = shared.fronts[reader.id]
        with caplog.at_level(logging.WARNING), front.telling(Watch(always(lie))):
            assert numbers(theirs) == [1, 2, 3, 4, 5, 6, 7], name
        assert "checkpoint_broken" in caplog.text, name
        assert since(front) == [0], name


def test_each_new_epoch_gets_a_checkpoint_of_its_own(shared: Shared) -> None:
    ada = shared.proxy(shared.team.ada, checkpoints=3)
    grace, alan = shared.person(form.WRITER), shared.person(form.READER)
    stored(ada, 1, 2, 3)
    written(ada, 3)
    assert shared.put_out(ada, grace).status == 200
    # The one before is of keys that somebody has who reads here no more.
    assert listed(ada) == []
    stored(ada, 4)
    # Of before that commit or after it: they are made at the same time.
    version = wire.decode_checkpoint_body(written(ada, 3, key_version=2)).version
    watch = Watch()
    theirs = shared.proxy(alan)
    with shared.fronts[alan.id].telling(watch):
        assert numbers(theirs) == [1, 2, 3, 4]
    assert [after for _, after in watch.handed] == [list(range(version + 1, 5))]


def test_a_proxy_that_remembers_an_older_head_proves_the_way_to_the_checkpoint(
    shared: Shared, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ada = shared.proxy(shared.team.ada, checkpoints=4)
    grace = shared.person(form.READER)
    stored(ada, 1, 2)
    assert numbers(shared.proxy(grace)) == [1, 2]
    away = shutil.copytree(grace.folder.parent, tmp_path / "away")
    (away / "proxy" / "ledgers.sqlite3").unlink(missing_ok=True)
    stored(ada, 3, 4, 5)
    honest = written(ada, 4)
    watch = Watch()
    front_of = shared.fronts
    theirs = shared.proxy(grace, folder=shutil.copytree(away, tmp_path / "first"))
    with front_of[grace.id].telling(watch):
        assert numbers(theirs) == [1, 2, 3, 4, 5]
    assert [after for _, after in watch.handed] == [[3, 4, 5]]
    assert since(front_of[grace.id]) == []
    # One that says of the versions between what was not so is of another log than was seen.
    body = wire.decode_checkpoint_body(honest)
    members = msgspec.msgpack.decode(body.state)
    members[0] = members[0][:32] + bytes(96) + members[0][128:]
    other = msgspec.structs.replace(body, state=msgspec.msgpack.encode(members))
    forged = signed(shared, shared.team.ada, other)
    theirs = shared.proxy(grace, folder=shutil.copytree(away, tmp_path / "second"))
    with (
        caplog.at_level(logging.WARNING),
        front_of[grace.id].telling(Watch(always(forged))),
    ):
        assert numbers(theirs) == [1, 2, 3, 4, 5]
    assert "is not of the log that was seen" in caplog.text
    assert since(front_of[grace.id]) == [0]


def test_a_writer_who_lied_is_named_by_whoever_writes_the_next_one(
    shared: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    ada = shared.proxy(shared.team.ada)
    mallory, grace = shared.person(form.WRITER), shared.person(form.WRITER)
    stored(ada, 1, 2, 3)
    theirs = shared.proxy(mallory, checkpoints=2)
    assert numbers(theirs) == [1, 2, 3]
    body = wire.decode_checkpoint_body(written(ada, 3))
    members = msgspec.msgpack.decode(body.state)
    members[18], members[19] = [[members[16][0][:16], [[0, 1]]]], []
    lie = signed(
        shared, mallory, msgspec.structs.replace(body, state=msgspec.msgpack.encode(members))
    )
    store_as(theirs, lie)
    stored(ada, 4)
    # Until then it is mallory's word, and whoever has no other believes it.
    own = shared.proxy(grace, checkpoints=2)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert numbers(own) == [2, 3, 4]
        own.ingest([{"n": 5}])
        settle_all(CHECKPOINTING)
        assert "checkpoint_broken" in caplog.text
        written(ada, 5)
    assert f"signed by {ids.to_text(mallory.id)}" in caplog.text
    assert numbers(own) == [1, 2, 3, 4, 5]


def store_as(store: Store, checkpoint: Checkpoint) -> None:
    """Have the API keep one: it cannot tell what the state says."""
    request = urllib.request.Request(
        f"{store.service.base_url}{store.schema}checkpoints/",
        wire.encode([checkpoint]),
        {"Authorization": store.account.auth, "Content-Type": wire.MEDIA_TYPE},
        method="POST",
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 201


def log_of(reply: Reply) -> ManifestDelta | None:
    """The commits behind the first one that an answer brings, if it brings any."""
    try:
        first = next(iter(wire.decode(reply.body)), None)
    except ErsError:
        return None
    if not isinstance(first, ManifestDelta) or not first.entries:
        return None
    return first if first.entries[0].version > 1 else None


def test_nobody_is_named_for_what_the_api_does_to_a_commit_behind_a_checkpoint(
    shared: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    ada = shared.proxy(shared.team.ada, checkpoints=3)
    stored(ada, 1, 2, 3)
    written(ada, 3)
    grace = shared.person(form.READER)
    theirs, front = shared.proxy(grace), shared.fronts[grace.id]
    assert numbers(theirs) == [1, 2, 3]
    assert since(front) == []
    stored(ada, 4)
    altered: list[int] = []

    def alter(_: Asked, reply: Reply) -> Reply:
        delta = None if altered else log_of(reply)
        if delta is None:
            return reply
        entry = delta.entries[0]
        altered.append(entry.version)
        commit = msgspec.structs.replace(entry.commit, mac=bytes(32))
        entries = [msgspec.structs.replace(entry, commit=commit)]
        return reply.with_body(wire.encode([msgspec.structs.replace(delta, entries=entries)]))

    with caplog.at_level(logging.WARNING), front.telling(alter):
        assert numbers(theirs) == [1, 2, 3, 4]
    assert altered == [4]
    assert 0 in since(front), "it began again"
    assert "signed by" not in caplog.text


def test_an_api_that_shows_two_logs_is_found_out_and_nobody_else_is_named(
    shared: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    ada = shared.proxy(shared.team.ada, checkpoints=3)
    stored(ada, 1, 2, 3)
    written(ada, 3)
    grace = shared.person(form.WRITER)
    stored(ada, 4, 5)
    theirs = shared.proxy(grace, checkpoints=2)
    front = shared.fronts[grace.id]
    began: list[str] = []

    def hide(asked: Asked, reply: Reply) -> Reply:
        """A commit comes while the log is verified, and is shown behind the checkpoint alone."""
        if asked.path.endswith("manifest/?since=0"):
            if not began:
                stored(ada, 6)
            began.append(asked.path)
        elif began and asked.path.endswith("manifest/?since=5"):
            began.append(asked.path)
            delta = next(iter(wire.decode(reply.body)))
            if len(began) == 3 and isinstance(delta, ManifestDelta):
                short = msgspec.structs.replace(delta, version=5, entries=[], headers=[])
                return reply.with_body(wire.encode([short]))
        return reply

    with caplog.at_level(logging.INFO), front.telling(hide):
        theirs.found()
        settle_all(CHECKPOINTING)
        assert "checkpoint is written:" in caplog.text or "signed by" in caplog.text
    assert len(began) == 3
    assert "signed by" not in caplog.text
    assert "no longer the one that it showed" in caplog.text
    assert numbers(theirs) == [1, 2, 3, 4, 5, 6]


def test_a_new_proxy_takes_no_log_that_is_shorter_than_the_roster_says(shared: Shared) -> None:
    ada = shared.proxy(shared.team.ada, checkpoints=2)
    alan, mallory = shared.person(form.READER), shared.person(form.WRITER)
    stored(ada, 1, 2)
    written(ada, 2)
    stored(ada, 3)
    assert shared.put_out(ada, mallory).status == 200
    theirs, front = shared.proxy(alan), shared.fronts[alan.id]

    def cut(asked: Asked, reply: Reply) -> Reply:
        """The log up to version 2, whoever asks for how much of it."""
        if "/manifest/?since=" not in asked.path or reply.status != 200:
            return reply
        items = [one for one in wire.decode(reply.body) if isinstance(one, ManifestDelta)]
        cut = [
            msgspec.structs.replace(
                item, version=2, entries=[entry for entry in item.entries if entry.version <= 2]
            )
            for item in items
        ]
        return reply.with_body(wire.encode(cut))

    with front.telling(cut):
        answer = theirs.proxy("POST", "/api/records/search/", {"schema": shared.schema})
    assert refused(answer) == (422, "log_broken")
    assert numbers(theirs) == [1, 2, 3]
