"""A mirror has the newest checkpoint of each log, and a new proxy begins there as over the API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from encrypted_records.mirror.layout import read_head
from encrypted_records.mirror.serving import serving_inline
from encrypted_records.model import wire
from encrypted_records.proxy.settings import MirrorPlace
from tests.mirror.copies import Place
from tests.mirror.test_restoring import machine, words_of
from tests.proxy.sharing.shared import Shared
from tests.proxy.sharing.test_checkpoints import Watch, listed, since, stored, written
from tests.support.front import Front, running_front
from tests.support.proxies import running_proxy
from tests.support.store import Store


@pytest.fixture
def ada(shared: Shared) -> Store:
    """A proxy that writes a checkpoint after three commits."""
    return shared.proxy(shared.team.ada, checkpoints=3)


@contextmanager
def reading(place: Place) -> Iterator[tuple[Front, str]]:
    """A proxy of the mirror on a new machine, by its URL, and the front before the mirror."""
    with (
        serving_inline(place.folder) as (url, secret),
        running_front(url) as front,
        running_proxy(
            front.url, place.data_dir, mirror=MirrorPlace(str(place.path), secret)
        ) as proxy,
    ):
        yield front, proxy.url


def numbers_of(url: str, store: Store, words: list[str]) -> list[int]:
    """The records that a new machine reads, after it has restored the keyring."""
    one = machine(store)
    new = type(one)(url, one.device)
    assert new.restore(words).status == 201
    found = new.ask("POST", "/api/records/search/", {"schema": store.schema})
    assert found.status == 200, found.body
    return sorted(record["data"]["n"] for record in found.json()["results"])


def test_a_new_proxy_begins_with_the_mirrors_checkpoint_and_the_log_after_it(
    ada: Store, tmp_path: Path
) -> None:
    stored(ada, 1, 2, 3)
    made = wire.decode_checkpoint_body(written(ada, 3))
    stored(ada, 4)
    place, watch = Place(tmp_path / "mirror", tmp_path / "new"), Watch()
    place.copy(ada)

    assert place.flaws() == []
    with reading(place) as (front, url), front.telling(watch):
        assert numbers_of(url, ada, words_of(ada)) == [1, 2, 3, 4]
    [(handed, after)] = watch.handed
    assert wire.decode_checkpoint_body(handed) == made
    assert after == [4]
    assert since(front) == []


def test_a_proxy_waits_longer_for_a_mirror_which_follows_a_log_before_it_answers(
    ada: Store, tmp_path: Path
) -> None:
    place = Place(tmp_path / "mirror", tmp_path / "new")
    place.copy(ada)
    with (
        serving_inline(place.folder) as (url, secret),
        running_proxy(url, place.data_dir, mirror=MirrorPlace(url, secret)) as mirrored,
        running_proxy(ada.service.base_url, tmp_path / "usual") as usual,
    ):
        waits = [one.services.api.transport.timing.silent_seconds for one in (mirrored, usual)]
    assert waits[0] > waits[1]


def test_a_run_replaces_the_checkpoint_by_a_newer_one_and_writes_it_once(
    ada: Store, tmp_path: Path
) -> None:
    place = Place(tmp_path / "mirror", tmp_path / "new")
    stored(ada, 1, 2)
    place.copy(ada)
    assert listed(ada) == []
    assert not checkpoints_in(place)
    stored(ada, 3)
    written(ada, 3)
    place.copy(ada)
    first = checkpoints_in(place)
    assert len(first) == 1
    assert place.copy(ada).objects == 1, "the head alone"
    assert checkpoints_in(place) == first
    stored(ada, 4, 5, 6)
    written(ada, 6)
    place.copy(ada)
    assert len(checkpoints_in(place)) == 1
    assert checkpoints_in(place) != first
    assert place.flaws() == []


@pytest.mark.parametrize("how", ["altered", "removed", "exchanged"])
def test_a_checkpoint_that_was_tampered_with_is_named_and_the_log_is_read_instead(
    how: str, ada: Store, tmp_path: Path
) -> None:
    place, watch = Place(tmp_path / "mirror", tmp_path / "new"), Watch()
    stored(ada, 1, 2, 3)
    written(ada, 3)
    place.copy(ada)
    earlier = next(place.path.glob("schemas/*/checkpoints/*")).read_bytes()
    stored(ada, 4, 5, 6)
    written(ada, 6)
    place.copy(ada)
    (path,) = place.path.glob("schemas/*/checkpoints/*")
    if how == "removed":
        path.unlink()
    else:
        path.write_bytes(earlier if how == "exchanged" else path.read_bytes()[:-1] + b"?")

    assert [name for flaw in place.flaws() for name in checkpoints_in(place) if name in flaw]
    with reading(place) as (front, url), front.telling(watch):
        assert numbers_of(url, ada, words_of(ada)) == [1, 2, 3, 4, 5, 6]
    assert watch.handed == []
    place.copy(ada)
    assert place.flaws() == [], "the next run copies it again"


def checkpoints_in(place: Place) -> list[str]:
    return [one.checkpoint for one in read_head(place.folder).schemas.values() if one.checkpoint]


def test_a_checkpoint_of_somebody_who_was_removed_is_not_copied_again_nor_believed(
    shared: Shared, tmp_path: Path
) -> None:
    owner = shared.proxy(shared.team.ada)
    stored(owner, 1)
    grace = shared.person(1)
    theirs = shared.proxy(grace, checkpoints=3)
    stored(theirs, 2, 3)
    written(theirs, 3)
    place = Place(tmp_path / "mirror", tmp_path / "new")
    place.copy(owner)
    assert checkpoints_in(place)
    assert shared.put_out(owner, grace).status < 300

    # The roster of the next run no longer lets the signer write.
    place.copy(owner)
    assert checkpoints_in(place) == []
    with reading(place) as (_, url):
        assert numbers_of(url, owner, words_of(owner)) == [1, 2, 3]
