"""What ``ers mirror`` writes, and what it does when it is interrupted."""

from __future__ import annotations

import base64
import errno
import fcntl
import shutil
from pathlib import Path

import pytest

from encrypted_records.errors import Conflict, NotAllowed, Unavailable
from encrypted_records.mirror import copier
from encrypted_records.mirror.layout import HEAD, MirrorFolder, read_head
from encrypted_records.mirror.serving import serving_inline
from encrypted_records.proxy import disk
from tests.mirror.copies import Place, basic
from tests.mirror.test_reading_a_mirror import people
from tests.support.service import Service
from tests.support.store import Store, new_store


class Killed(BaseException):
    """The end of a process, which no error handling sees."""


class Mortal(MirrorFolder):
    """A folder whose process is killed at a number of writes and deletions."""

    def __init__(self, path: Path, left: int) -> None:
        super().__init__(path)
        self.left = left

    def _live(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def write(self, name: str, data: bytes) -> None:
        self._live()
        super().write(name, data)

    def delete(self, name: str) -> None:
        self._live()
        super().delete(name)


def test_a_second_run_writes_only_what_is_new(store: Store, place: Place) -> None:
    store.ingest(people(150))
    first = place.copy(store)
    idle = place.copy(store)
    before = set(place.files())
    store.ingest(people(3))
    second = place.copy(store)

    assert (idle.objects, idle.deleted) == (1, 0), "the head alone says when it was taken"
    assert first.objects > second.objects
    kept = before & set(place.files())
    groups = [path for path in kept if "/groups/" in str(path)]
    assert len(groups) >= 3, "what was copied before is there as it was"
    assert place.flaws() == []


def test_a_long_log_is_copied_in_objects_that_readers_can_take_in(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copier, "_DELTA_BYTES", 1)
    for number in range(3):
        store.ingest(people(number + 1))
    place.copy(store)
    store.ingest(people(1))
    place.copy(store)

    names = read_head(place.folder).schemas[store.schema_id].log
    assert [name.rpartition("/")[2] for name in names] == ["1-1", "2-2", "3-3", "4-4"]
    assert place.flaws() == []
    with place.read(store) as mirrored:
        assert mirrored.everything() == store.everything()


def test_a_deleted_record_goes_from_the_mirror_with_the_next_run(
    store: Store, place: Place
) -> None:
    records = store.ingest(people(70))
    sealed = store.proxy("GET", f"/api/records/{records[9]}/?sealed=true").json()
    ciphertext = base64.b64decode(sealed["fields"]["name"])
    place.copy(store)
    assert holds(place, ciphertext)
    assert store.proxy("DELETE", f"/api/records/{records[9]}/").status == 204
    place.copy(store)

    assert not holds(place, ciphertext)
    assert place.flaws() == []
    with place.read(store) as mirrored:
        assert mirrored.found() == [one for one in records if one != records[9]]


def holds(place: Place, data: bytes) -> bool:
    return any(data in path.read_bytes() for path in place.files())


def test_a_run_that_is_killed_anywhere_leaves_a_whole_mirror_and_the_next_one_goes_on(
    store: Store, place: Place
) -> None:
    records = store.ingest(people(130))
    place.copy(store)
    seen = place.path.with_name("seen")
    shutil.copytree(place.path, seen)
    store.ingest(people(5))
    assert store.proxy("DELETE", f"/api/records/{records[2]}/").status == 204
    heads = {(seen / HEAD).read_bytes()}
    killed = 0

    for left in range(200):
        shutil.rmtree(place.path)
        shutil.copytree(seen, place.path)
        try:
            place.copy(store, Mortal(place.path, left))
        except Killed:
            killed += 1
            assert place.flaws() == []
            heads.add(read_head(place.folder).schemas[store.schema_id].digest.encode())
        else:
            break
        place.copy(store)
        assert place.flaws() == []
    assert killed > 10, "it was killed at each of its steps"
    assert len(heads) == 3, "the head is the one before, or the one after"
    with place.read(store) as mirrored:
        assert mirrored.everything() == store.everything()


def test_a_first_run_that_is_killed_is_named_and_goes_on(store: Store, place: Place) -> None:
    store.ingest(people(10))
    with pytest.raises(Killed):
        place.copy(store, Mortal(place.path, 4))

    with pytest.raises(Exception, match="the first copy has not come to its end") as raised:
        place.flaws()
    assert getattr(raised.value, "reason", "") == "mirror_incomplete"
    place.copy(store)
    assert place.flaws() == []


def test_a_folder_with_anything_else_is_left_alone(store: Store, place: Place) -> None:
    place.path.mkdir()
    (place.path / "holiday.jpg").write_bytes(b"sea")

    with pytest.raises(NotAllowed) as raised:
        place.copy(store)
    assert raised.value.reason == "mirror_of_another"
    assert [path.name for path in place.files()] == ["holiday.jpg"]


def test_the_mirror_of_another_account_is_left_alone(
    store: Store, service: Service, place: Place
) -> None:
    store.ingest(people(2))
    place.copy(store)
    before = {path: path.read_bytes() for path in place.files()}

    with pytest.raises(NotAllowed) as raised:
        place.copy(new_store(service, {"type": "object", "properties": {"s": {"type": "string"}}}))
    assert raised.value.reason == "mirror_of_another"
    assert {path: path.read_bytes() for path in place.files()} == before


def test_an_api_that_lacks_what_the_mirror_has_is_named_and_the_mirror_keeps_it(
    store: Store, place: Place
) -> None:
    store.ingest(people(2))
    older = Place(place.path.with_name("older"), place.data_dir)
    older.copy(store)
    store.ingest(people(2))
    place.copy(store)
    before = {path: path.read_bytes() for path in place.files()}

    # An API that was restored to an earlier moment answers as a mirror of then does.
    with serving_inline(older.folder) as (url, secret):
        member = read_head(older.folder).member
        with pytest.raises(Conflict) as raised:
            place.copy_from(url, basic(member, secret))
    assert raised.value.reason == "log_conflict"
    assert "restored" in raised.value.hint
    assert {path: path.read_bytes() for path in place.files()} == before


def test_a_mirror_holds_no_plaintext_no_key_and_no_credential(store: Store, place: Place) -> None:
    store.ingest([{"name": "Wilhelmina Underwood", "age": 41, "note": "allergic to penicillin"}])
    token = store.api("POST", "/api/token/", credentials(store)).json()
    place.copy(store)
    keys = [path.read_bytes() for path in (place.data_dir / "proxy").rglob("*.key")]
    secrets = [
        *(b"Wilhelmina", b"Underwood", b"penicillin", b"allergic"),
        store.account.password.encode(),
        base64.b64encode(f"{store.account.email}:{store.account.password}".encode()),
        token["access"].encode(),
        token["refresh"].encode(),
        store.device.text.encode(),
        store.device.digest,
        *filter(None, keys),
    ]

    assert keys, "there is a key to look for"
    assert [secret for secret in secrets if holds(place, secret)] == []
    assert {path.stat().st_mode & 0o077 for path in place.files()} == {0}


def credentials(store: Store) -> dict[str, str]:
    return {"email": store.account.email, "password": store.account.password}


def test_a_place_whose_file_system_has_no_locks_is_not_said_to_be_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_file: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(Unavailable), MirrorFolder(tmp_path).alone():
        pass


def test_a_power_failure_undoes_no_folder_of_an_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(disk, "sync_folder", synced.append)
    MirrorFolder(tmp_path / "mirror").write("schemas/a/log/1-2", b"x")
    log = tmp_path / "mirror" / "schemas" / "a" / "log"
    assert set(synced) == {log, *log.parents[:4]}
