"""Whom a copy serves: an owner's all members, a member's the member alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.mirror.copies import Place
from tests.proxy.sharing.shared import Shared, numbers


def test_the_copy_of_an_owner_serves_every_member(shared: Shared, tmp_path: Path) -> None:
    owner = shared.proxy(shared.team.ada)
    bob = shared.person(0)
    reader = shared.proxy(bob)
    owner.ingest([{"n": 1}, {"n": 2}])
    # Their devices come in with a code, as a browser's would.
    assert numbers(reader) == [1, 2]
    take_in(reader)
    Place(tmp_path / "mirror", bob.folder.parent).copy(owner)

    with Place(tmp_path / "mirror", bob.folder.parent).read(reader) as mirrored:
        assert numbers(mirrored) == [1, 2]


def test_the_copy_of_a_member_serves_the_member_and_nobody_else(
    shared: Shared, tmp_path: Path
) -> None:
    owner = shared.proxy(shared.team.ada)
    bob, carol = shared.person(0), shared.person(0)
    of_bob, of_carol = shared.proxy(bob), shared.proxy(carol)
    owner.ingest([{"n": 3}])
    assert numbers(of_bob) == numbers(of_carol) == [3]
    take_in(of_bob)
    take_in(of_carol)
    mirror = Place(tmp_path / "mirror", bob.folder.parent)
    mirror.copy(of_bob)

    assert mirror.flaws() == []
    with mirror.read(of_bob) as mirrored:
        assert numbers(mirrored) == [3]
    with replace(mirror, data_dir=carol.folder.parent).read(of_carol) as mirrored:
        refused = mirrored.ask()
    assert (refused.status, refused.json()["code"]) == (422, "grant_missing")


def test_a_member_who_was_removed_reads_on_only_in_a_copy_of_before(
    shared: Shared, tmp_path: Path
) -> None:
    owner = shared.proxy(shared.team.ada)
    bob = shared.person(0)
    reader = shared.proxy(bob)
    owner.ingest([{"n": 4}])
    assert numbers(reader) == [4]
    take_in(reader)
    before = Place(tmp_path / "before", bob.folder.parent)
    before.copy(owner)
    assert shared.put_out(owner, bob).status < 300
    owner.ingest([{"n": 5}])
    after = Place(tmp_path / "after", bob.folder.parent)
    after.copy(owner)

    with before.read(reader) as mirrored:
        assert numbers(mirrored) == [4]
    with after.read(reader) as mirrored:
        assert mirrored.ask().status in (403, 422)


def take_in(store: object) -> None:
    """Register the store's device at its proxy."""
    from tests.support.service import call
    from tests.support.store import Store

    assert isinstance(store, Store)
    code = store.service.code_for(store.account)
    url = f"{store.service.proxy_url}/api/devices/"
    body = {"code": code, "name": "a program"}
    headers = {"X-ERS-Device": store.device.text}
    answer = call("POST", url, body, auth=store.account.auth, headers=headers)
    assert answer.status == 201, answer.body
