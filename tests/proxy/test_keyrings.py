"""A keyring is made once, kept sealed, and never replaced."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from encrypted_records.crypto.format import WRAP_PASSPHRASE
from encrypted_records.crypto.keys import Keyring
from encrypted_records.crypto.recovery import KdfCost, Passphrase, unwrap, wrapping_of
from encrypted_records.errors import Closed, Conflict, NotFound, OutOfSpace, Startup, Throttled
from encrypted_records.model.ids import new_id
from encrypted_records.proxy import disk as durable
from encrypted_records.proxy.keyrings.devices import NEW_KEYRINGS, AccessStore, Enrolment
from encrypted_records.proxy.keyrings.holder import Holder, Level, Policy
from encrypted_records.proxy.keyrings.store import Keyrings
from tests.support.keyrings import holder, keyrings_in

USER, SCHEMA, ORGANIZATION = new_id(), new_id(), new_id()


def key_id(keyrings: Keyrings, user: bytes = USER) -> bytes:
    return keyrings.of(holder(user)).schema(ORGANIZATION, SCHEMA).newest.id


def keyring_file(folder: Path) -> Path:
    (path,) = (folder / "keyrings").iterdir()
    return path


def test_a_keyring_is_the_same_after_a_restart(tmp_path: Path) -> None:
    assert key_id(keyrings_in(tmp_path)) == key_id(keyrings_in(tmp_path))


def test_users_have_keyrings_of_their_own(tmp_path: Path) -> None:
    keyrings = keyrings_in(tmp_path)

    assert key_id(keyrings) != key_id(keyrings, new_id())


def test_two_that_make_a_keyring_at_once_end_up_with_one(tmp_path: Path) -> None:
    several = [keyrings_in(tmp_path) for _ in range(8)]

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(key_id, several))) == 1


def test_only_the_owner_may_read_the_files_and_they_hold_no_key_in_the_clear(
    tmp_path: Path,
) -> None:
    keyring = keyrings_in(tmp_path).of(holder(USER))

    for path in (tmp_path / "machine.key", keyring_file(tmp_path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert keyring.roots[1].export() not in path.read_bytes()


def test_a_damaged_keyring_is_named_and_left_alone(tmp_path: Path) -> None:
    keyrings_in(tmp_path).of(holder(USER))
    path = keyring_file(tmp_path)
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)

    with pytest.raises(Closed) as caught:
        keyrings_in(tmp_path).of(holder(USER))

    assert caught.value.reason == "keyring_damaged"
    assert path.name in caught.value.message
    assert path.read_bytes() == damaged


def test_an_empty_keyring_file_is_damage_too(tmp_path: Path) -> None:
    keyrings_in(tmp_path).of(holder(USER))
    keyring_file(tmp_path).write_bytes(b"")

    with pytest.raises(Closed):
        keyrings_in(tmp_path).of(holder(USER))


def test_a_keyring_of_another_user_does_not_open_under_this_ones_name(tmp_path: Path) -> None:
    keyrings = keyrings_in(tmp_path)
    keyrings.of(holder(USER))
    mine = keyring_file(tmp_path)
    keyrings.of(holder(other := new_id()))
    theirs = next(path for path in mine.parent.iterdir() if path != mine)
    theirs.write_bytes(mine.read_bytes())

    with pytest.raises(Closed):
        keyrings_in(tmp_path).of(holder(other))


def test_a_lost_machine_key_is_not_replaced_while_keyrings_depend_on_it(tmp_path: Path) -> None:
    keyrings_in(tmp_path).of(holder(USER))
    (tmp_path / "machine.key").unlink()

    with pytest.raises(Startup, match="is missing"):
        keyrings_in(tmp_path)

    assert not (tmp_path / "machine.key").exists()


def test_a_damaged_machine_key_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "machine.key").write_bytes(os.urandom(31))

    with pytest.raises(Startup, match="is damaged"):
        keyrings_in(tmp_path)


def quick(text: str = "correct horse") -> Passphrase:
    return Passphrase(text, cost=KdfCost(8192, 1, 1))


def names(folder: Path) -> set[str]:
    return {path.name for path in (folder / "keyrings").iterdir()}


def test_with_a_passphrase_there_is_no_machine_key(tmp_path: Path) -> None:
    made = key_id(keyrings_in(tmp_path, quick()))

    assert key_id(keyrings_in(tmp_path, quick())) == made
    assert not (tmp_path / "machine.key").exists()
    assert wrapping_of(keyring_file(tmp_path).read_bytes()) == WRAP_PASSPHRASE


@pytest.mark.parametrize("secrets", [[], [quick("another one")]], ids=["none", "another"])
def test_without_its_passphrase_a_keyring_is_locked_and_left_alone(
    tmp_path: Path, secrets: list[Passphrase]
) -> None:
    keyrings_in(tmp_path, quick()).of(holder(USER))
    path = keyring_file(tmp_path)
    before = path.read_bytes()

    with pytest.raises(Closed) as caught:
        keyrings_in(tmp_path, *secrets).of(holder(USER))

    assert caught.value.reason == "keyring_locked"
    assert path.name in caught.value.message
    assert caught.value.hint
    assert path.read_bytes() == before
    assert key_id(keyrings_in(tmp_path, quick()))


def test_a_passphrase_takes_over_from_the_machine_key_and_the_keys_stay(tmp_path: Path) -> None:
    before = key_id(keyrings_in(tmp_path))

    assert key_id(keyrings_in(tmp_path, quick())) == before
    (tmp_path / "machine.key").unlink()
    assert key_id(keyrings_in(tmp_path, quick())) == before


def test_the_file_before_is_kept_but_no_longer_under_the_machine_key(tmp_path: Path) -> None:
    keyring = keyrings_in(tmp_path).of(holder(USER))
    path = keyring_file(tmp_path)
    keyrings_in(tmp_path, quick()).of(holder(USER))

    kept = path.with_name(f"{path.name}.previous")
    assert names(tmp_path) == {path.name, kept.name}
    for one in (path, kept):
        assert wrapping_of(one.read_bytes()) == WRAP_PASSPHRASE
        opened = unwrap(one.read_bytes(), quick(), USER)
        assert opened.roots[1].export() == keyring.roots[1].export()
        assert opened.roots[1].created == keyring.roots[1].created > 0
        assert stat.S_IMODE(one.stat().st_mode) == 0o600


def test_a_machine_key_that_was_kept_by_an_interrupted_change_is_not_left_lying(
    tmp_path: Path,
) -> None:
    before = key_id(keyrings_in(tmp_path))
    path = keyring_file(tmp_path)
    under_machine_key = path.read_bytes()
    keyrings_in(tmp_path, quick()).of(holder(USER))
    kept = path.with_name(f"{path.name}.previous")
    kept.write_bytes(under_machine_key)

    assert key_id(keyrings_in(tmp_path, quick())) == before
    assert wrapping_of(kept.read_bytes()) == WRAP_PASSPHRASE


def test_a_change_that_was_interrupted_leaves_a_keyring_that_opens(tmp_path: Path) -> None:
    before = key_id(keyrings_in(tmp_path))
    path = keyring_file(tmp_path)
    path.with_name(f".{path.name}.0011223344556677").write_bytes(b"ERSKEYRING half of a f")
    path.with_name(f"{path.name}.previous").hardlink_to(path)

    assert key_id(keyrings_in(tmp_path)) == before
    assert key_id(keyrings_in(tmp_path, quick())) == before


def test_what_cannot_be_written_leaves_the_keyring_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key_id(keyrings_in(tmp_path))
    file = keyring_file(tmp_path).read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OutOfSpace, match="disk is full"):
            keyrings_in(tmp_path, quick()).of(holder(USER))

    assert all(not name.startswith(".") for name in names(tmp_path))
    path = next((tmp_path / "keyrings").glob("*.keyring"))
    assert path.read_bytes() == file
    assert key_id(keyrings_in(tmp_path, quick())) == before


def test_a_keyring_that_vanished_is_not_made_anew_while_an_older_one_is_kept(
    tmp_path: Path,
) -> None:
    keyrings_in(tmp_path).of(holder(USER))
    path = keyring_file(tmp_path)
    path.rename(path.with_name(f"{path.name}.previous"))

    with pytest.raises(Closed, match=r"\.previous") as caught:
        keyrings_in(tmp_path).of(holder(USER))

    assert caught.value.reason == "keyring_damaged"
    assert not path.exists()


def test_nothing_that_was_kept_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0")
    for number in (1, 2, 3):
        durable.replace_and_keep(path, b"%d" % number)

    assert path.read_bytes() == b"3"
    assert [one.read_bytes() for one in durable.list_kept(path)] == [b"0", b"1", b"2"]


def test_asking_for_a_keyring_does_not_make_one(tmp_path: Path) -> None:
    keyrings = keyrings_in(tmp_path)

    assert keyrings.existing(holder(USER)) is None
    assert names(tmp_path) == set()
    made = keyrings.of(holder(USER))
    assert keyrings_in(tmp_path).existing(holder(USER)) is not None
    assert keyrings.existing(holder(USER)) is made


def test_a_restored_keyring_is_the_users_and_counts_as_backed_up(tmp_path: Path) -> None:
    other, keyrings = Keyring.generate(created=9), keyrings_in(tmp_path)
    assert keyrings.backups.missing(USER, keyrings.of(holder(USER))) == [1]
    old = keyring_file(tmp_path).read_bytes()

    with pytest.raises(Conflict) as caught:
        keyrings.changes.restore(holder(USER), other, replace=False)
    assert caught.value.reason == "keyring_exists"
    assert keyrings.of(holder(USER)) is not other
    keyrings.changes.restore(holder(USER), other, replace=True)

    expected = other.schema(ORGANIZATION, SCHEMA).newest.id
    assert key_id(keyrings) == key_id(keyrings_in(tmp_path)) == expected
    assert keyrings.backups.missing(USER, other) == []
    (kept,) = (tmp_path / "keyrings").glob("*.previous")
    assert kept.read_bytes() == old


def test_a_keyring_that_is_locked_is_restored_under_the_new_passphrase(tmp_path: Path) -> None:
    keyring = keyrings_in(tmp_path, quick("the old one")).of(holder(USER))
    keyrings = keyrings_in(tmp_path, quick("the new one"))
    with pytest.raises(Closed):
        keyrings.of(holder(USER))

    keyrings.changes.restore(holder(USER), keyring, replace=True)

    reopened = keyrings_in(tmp_path, quick("the new one"))
    assert key_id(reopened) == keyring.schema(ORGANIZATION, SCHEMA).newest.id
    (kept,) = (tmp_path / "keyrings").glob("*.previous")
    assert unwrap(kept.read_bytes(), quick("the old one"), USER).fingerprint == keyring.fingerprint


def test_a_restoration_that_fails_leaves_what_is_on_disk_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyrings = keyrings_in(tmp_path)
    before = key_id(keyrings)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OutOfSpace, match="disk is full"):
            keyrings.changes.restore(holder(USER), Keyring.generate(), replace=True)

    assert key_id(keyrings) == key_id(keyrings_in(tmp_path)) == before


def test_a_confirmed_backup_is_of_one_key_alone(tmp_path: Path) -> None:
    keyrings = keyrings_in(tmp_path)
    keyring = keyrings.of(holder(USER))
    keyrings.backups.confirm(USER, keyring.roots.values())

    assert keyrings_in(tmp_path).backups.missing(USER, keyring) == []
    assert keyrings.backups.missing(USER, Keyring.generate()) == [1]
    rotated = keyrings.changes.rotate(holder(USER))
    assert keyrings.backups.missing(USER, rotated) == [2]
    keyrings.backups.confirm(USER, [rotated.roots[2]])
    assert keyrings_in(tmp_path).backups.missing(USER, rotated) == []


def test_a_rotated_keyring_is_sealed_as_before_and_the_old_file_is_kept(tmp_path: Path) -> None:
    keyrings = keyrings_in(tmp_path, quick())
    before = keyrings.of(holder(USER))
    old = keyring_file(tmp_path).read_bytes()

    rotated = keyrings.changes.rotate(holder(USER))

    assert rotated.newest == 2
    assert rotated.roots[1].export() == before.roots[1].export()
    assert rotated.roots[2].created > 1_700_000_000
    assert keyrings.of(holder(USER)) is rotated
    assert keyrings_in(tmp_path, quick()).of(holder(USER)).fingerprint == rotated.fingerprint
    (kept,) = (tmp_path / "keyrings").glob("*.previous")
    assert kept.read_bytes() == old


def test_what_is_not_there_or_locked_is_not_rotated(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        keyrings_in(tmp_path, quick()).changes.rotate(holder(USER))
    keyrings_in(tmp_path, quick()).of(holder(USER))
    old = keyring_file(tmp_path).read_bytes()
    with pytest.raises(Closed):
        keyrings_in(tmp_path, quick("another")).changes.rotate(holder(USER))
    assert keyring_file(tmp_path).read_bytes() == old


def test_a_keyring_with_all_keys_of_the_present_one_needs_no_leave_to_replace_it(
    tmp_path: Path,
) -> None:
    keyrings = keyrings_in(tmp_path)
    present = keyrings.of(holder(USER))
    newer = present.rotate()
    for other in (Keyring({1: newer.roots[2], 2: newer.roots[1]}), Keyring.generate().rotate()):
        with pytest.raises(Conflict):
            keyrings.changes.restore(holder(USER), other, replace=False)

    keyrings.changes.restore(holder(USER), newer, replace=False)

    assert keyrings_in(tmp_path).of(holder(USER)).fingerprint == newer.fingerprint
    with pytest.raises(Conflict):
        keyrings.changes.restore(holder(USER), present, replace=False)


def test_a_clock_that_is_set_back_refuses_new_keyrings_for_no_longer_than_an_hour(
    tmp_path: Path,
) -> None:
    clock = iter([4e9] * NEW_KEYRINGS + [2e9])
    store, policy = AccessStore(tmp_path / "access.sqlite3"), Policy(Level.DEVICE, lone=False)
    enrolment = Enrolment(store, policy, clock=lambda: next(clock))
    newcomer = Holder(USER, "", address="192.0.2.1")
    for _ in range(NEW_KEYRINGS):
        enrolment.admit_new(newcomer, others=False)
    with pytest.raises(Throttled) as refused:
        enrolment.admit_new(newcomer, others=False)
    assert 0 < (refused.value.retry_after or 0) <= 3601


def test_the_folder_of_keyrings_is_on_disk_before_a_keyring_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(durable, "sync_folder", synced.append)
    keyrings_in(tmp_path, quick())  # without a machine key, which syncs its own folder
    assert tmp_path in synced
