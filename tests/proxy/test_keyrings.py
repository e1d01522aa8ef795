"""A keyring is made once, kept sealed, and never replaced."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from encrypted_records.errors import Closed, Startup
from encrypted_records.model.ids import new_id
from encrypted_records.proxy.keyrings import Keyrings

USER, SCHEMA, ORGANIZATION = new_id(), new_id(), new_id()


def key_id(keyrings: Keyrings, user: bytes = USER) -> bytes:
    return keyrings.of(user).schema(ORGANIZATION, SCHEMA).id


def keyring_file(folder: Path) -> Path:
    (path,) = (folder / "keyrings").iterdir()
    return path


def test_a_keyring_is_the_same_after_a_restart(tmp_path: Path) -> None:
    assert key_id(Keyrings(tmp_path)) == key_id(Keyrings(tmp_path))


def test_users_have_keyrings_of_their_own(tmp_path: Path) -> None:
    keyrings = Keyrings(tmp_path)

    assert key_id(keyrings) != key_id(keyrings, new_id())


def test_two_that_make_a_keyring_at_once_end_up_with_one(tmp_path: Path) -> None:
    several = [Keyrings(tmp_path) for _ in range(8)]

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(key_id, several))) == 1


def test_only_the_owner_may_read_the_files_and_they_hold_no_key_in_the_clear(
    tmp_path: Path,
) -> None:
    keyring = Keyrings(tmp_path).of(USER)

    for path in (tmp_path / "machine.key", keyring_file(tmp_path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert keyring.roots[1].export() not in path.read_bytes()


def test_a_damaged_keyring_is_named_and_left_alone(tmp_path: Path) -> None:
    Keyrings(tmp_path).of(USER)
    path = keyring_file(tmp_path)
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)

    with pytest.raises(Closed) as caught:
        Keyrings(tmp_path).of(USER)

    assert caught.value.reason == "keyring_damaged"
    assert path.name in caught.value.message
    assert path.read_bytes() == damaged


def test_an_empty_keyring_file_is_damage_too(tmp_path: Path) -> None:
    Keyrings(tmp_path).of(USER)
    keyring_file(tmp_path).write_bytes(b"")

    with pytest.raises(Closed):
        Keyrings(tmp_path).of(USER)


def test_a_keyring_of_another_user_does_not_open_under_this_ones_name(tmp_path: Path) -> None:
    keyrings = Keyrings(tmp_path)
    keyrings.of(USER)
    mine = keyring_file(tmp_path)
    keyrings.of(other := new_id())
    theirs = next(path for path in mine.parent.iterdir() if path != mine)
    theirs.write_bytes(mine.read_bytes())

    with pytest.raises(Closed):
        Keyrings(tmp_path).of(other)


def test_a_lost_machine_key_is_not_replaced_while_keyrings_depend_on_it(tmp_path: Path) -> None:
    Keyrings(tmp_path).of(USER)
    (tmp_path / "machine.key").unlink()

    with pytest.raises(Startup, match="is missing"):
        Keyrings(tmp_path)

    assert not (tmp_path / "machine.key").exists()


def test_a_damaged_machine_key_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "machine.key").write_bytes(os.urandom(31))

    with pytest.raises(Startup, match="is damaged"):
        Keyrings(tmp_path)
