"""Passphrases are given, changed and taken back while the proxy runs; no record is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from encrypted_records.crypto.recovery import Cost, KeychainKey, MachineKey, Passphrase, TransitKey
from encrypted_records.errors import Closed, Conflict, NotFound, OutOfSpace, Throttled
from encrypted_records.model.ids import new_id
from encrypted_records.proxy import durable
from encrypted_records.proxy.attempts import LONGEST_SECONDS, Attempts
from encrypted_records.proxy.keyrings import Keyrings

USER = new_id()


def quick(text: str) -> Passphrase:
    return Passphrase(text, cost=Cost(8192, 1, 1))


OLD, NEW, WRONG = quick("the old one"), quick("the new one"), quick("a wrong one")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def files(folder: Path) -> list[Path]:
    return sorted((folder / "keyrings").iterdir())


def test_a_locked_keyring_is_unlocked_for_this_process_alone_and_locked_again(
    tmp_path: Path,
) -> None:
    fingerprint = Keyrings(tmp_path, OLD).of(USER).fingerprint
    keyrings = Keyrings(tmp_path)
    with pytest.raises(Closed) as caught:
        keyrings.of(USER)
    assert caught.value.reason == "keyring_locked"
    assert "ers keyring unlock" in caught.value.hint

    assert keyrings.unlock(USER, OLD).fingerprint == fingerprint
    assert keyrings.of(USER).fingerprint == fingerprint
    with pytest.raises(Closed):
        Keyrings(tmp_path).of(USER)
    # What is written now is sealed with what it was unlocked with.
    rotated = keyrings.rotate(USER)
    assert Keyrings(tmp_path, OLD).of(USER).fingerprint == rotated.fingerprint

    keyrings.lock(USER)
    with pytest.raises(Closed):
        keyrings.of(USER)


def test_what_opens_by_itself_is_not_locked_and_what_is_not_there_not_unlocked(
    tmp_path: Path,
) -> None:
    keyrings = Keyrings(tmp_path, OLD)
    with pytest.raises(NotFound):
        keyrings.unlock(USER, OLD)
    made = keyrings.of(USER)
    assert keyrings.unlock(USER, WRONG) is made
    with pytest.raises(Conflict) as caught:
        keyrings.lock(USER)
    assert caught.value.reason == "keyring_not_lockable"
    assert keyrings.of(USER) is made


def test_each_wrong_passphrase_doubles_the_wait_and_a_right_one_ends_it(tmp_path: Path) -> None:
    Keyrings(tmp_path, OLD).of(USER)
    clock = Clock()
    keyrings = Keyrings(tmp_path, attempts=Attempts(clock))
    for wait in (1, 2, 4, 8):
        with pytest.raises(Closed):
            keyrings.unlock(USER, WRONG)
        # Not even the right one is looked at before its time; else waiting would tell it apart.
        for early in (WRONG, OLD):
            with pytest.raises(Throttled) as caught:
                keyrings.unlock(USER, early)
            assert caught.value.retry_after == wait
        clock.now += wait
    keyrings.unlock(USER, OLD)
    keyrings.lock(USER)
    with pytest.raises(Closed):
        keyrings.unlock(USER, WRONG)
    with pytest.raises(Throttled) as caught:
        keyrings.unlock(USER, OLD)
    assert caught.value.retry_after == 1


def test_the_wait_has_an_end_and_is_each_users_own() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    for _ in range(5000):
        attempts.wrong(USER)
    attempts.check(new_id())
    clock.now += LONGEST_SECONDS - 1
    with pytest.raises(Throttled):
        attempts.check(USER)
    clock.now += 1
    attempts.check(USER)


def test_after_a_change_nothing_in_the_folder_opens_with_the_old_passphrase(
    tmp_path: Path,
) -> None:
    keyrings = Keyrings(tmp_path, OLD)
    for _ in range(2):
        keyrings.of(USER)
        keyrings.rotate(USER)
    assert len(files(tmp_path)) == 3

    assert keyrings.change_passphrase(USER, OLD, NEW) == 0

    assert len(files(tmp_path)) == 3
    with pytest.raises(Closed):
        Keyrings(tmp_path, OLD).of(USER)
    assert keyrings.of(USER).newest == Keyrings(tmp_path, NEW).of(USER).newest == 3
    (path,) = (one for one in files(tmp_path) if one.suffix == ".keyring")
    for kept in durable.kept_of(path):
        kept.replace(path)
        with pytest.raises(Closed):
            Keyrings(tmp_path, OLD).of(USER)
        assert Keyrings(tmp_path, NEW).of(USER)


def test_a_change_needs_the_present_passphrase_where_there_is_one(tmp_path: Path) -> None:
    keyrings = Keyrings(tmp_path)
    keyrings.of(USER)
    assert keyrings.change_passphrase(USER, None, OLD) == 0
    before = [one.read_bytes() for one in files(tmp_path)]
    with pytest.raises(Closed, match="present passphrase"):
        keyrings.change_passphrase(USER, None, NEW)
    with pytest.raises(Closed):
        keyrings.change_passphrase(USER, WRONG, NEW)
    with pytest.raises(Throttled):
        keyrings.change_passphrase(USER, OLD, NEW)
    assert [one.read_bytes() for one in files(tmp_path)] == before
    assert Keyrings(tmp_path, OLD).of(USER)


def test_kept_files_of_another_passphrase_are_counted_and_left(tmp_path: Path) -> None:
    keyring = Keyrings(tmp_path, quick("long forgotten")).of(USER)
    keyrings = Keyrings(tmp_path, OLD)
    keyrings.restore(USER, keyring, replace=True)
    (kept,) = (one for one in files(tmp_path) if one.suffix != ".keyring")
    before = kept.read_bytes()
    assert keyrings.change_passphrase(USER, OLD, NEW) == 1
    assert kept.read_bytes() == before


@pytest.mark.parametrize("broken_after", range(3))
def test_a_change_that_is_cut_short_loses_nothing_and_can_be_repeated(
    tmp_path: Path, broken_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyrings = Keyrings(tmp_path, OLD)
    keyrings.of(USER)
    for _ in range(2):
        keyrings.rotate(USER)
    replace, done = durable.replace, []

    def failing(path: Path, content: bytes) -> None:
        if len(done) == broken_after:
            raise OSError(28, "No space left on device")
        done.append(path)
        replace(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "replace", failing)
        with pytest.raises(OutOfSpace):
            keyrings.change_passphrase(USER, OLD, NEW)

    again = Keyrings(tmp_path, OLD)
    assert again.of(USER).newest == 3
    assert again.change_passphrase(USER, OLD, NEW) == 0
    assert Keyrings(tmp_path, NEW).of(USER).newest == 3


#: Runs in a process of its own: what the limit does to a write is real, and ends there.
_WITH_A_FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from encrypted_records.crypto.recovery import Cost, Passphrase
from encrypted_records.errors import OutOfSpace
from encrypted_records.proxy.keyrings import Keyrings

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
user = bytes.fromhex(sys.argv[2])
old, new = (Passphrase(text, cost=Cost(8192, 1, 1)) for text in ("the old one", "the new one"))
keyrings = Keyrings(Path(sys.argv[1]), old)
keyrings.of(user)
resource.setrlimit(resource.RLIMIT_FSIZE, (60, 60))
for change in (
    lambda: keyrings.change_passphrase(user, old, new),
    lambda: keyrings.rotate(user),
    lambda: keyrings.restore(user, keyrings.of(user), replace=True),
    lambda: keyrings.of(bytes(16)),
):
    try:
        change()
    except OutOfSpace as error:
        print(error.message)
"""


def test_a_full_disk_is_named_and_every_keyring_stays_as_it_was(tmp_path: Path) -> None:
    before = Keyrings(tmp_path, OLD).of(USER)
    content = files(tmp_path)[0].read_bytes()

    done = subprocess.run(
        [sys.executable, "-c", _WITH_A_FULL_DISK, str(tmp_path), USER.hex()],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines() == ["the disk is full: the keyring is as it was before"] * 4
    assert Keyrings(tmp_path, OLD).of(USER).fingerprint == before.fingerprint
    assert content in [one.read_bytes() for one in files(tmp_path)]
    assert not [one for one in files(tmp_path) if one.name.startswith(".")]


KEYCHAIN, TRANSIT = KeychainKey(os.urandom(32)), TransitKey(os.urandom(32))


def test_files_under_a_secret_that_comes_later_are_sealed_with_the_preferred_one(
    tmp_path: Path,
) -> None:
    made = Keyrings(tmp_path).of(USER)
    steps: list[tuple[str, list[KeychainKey | TransitKey | Passphrase]]] = [
        ("vault", [TRANSIT]),
        ("keychain", [KEYCHAIN, TRANSIT]),
        ("passphrase", [OLD, KEYCHAIN, TRANSIT]),
    ]
    for name, secrets in steps:
        keyrings = Keyrings(tmp_path, *secrets)
        assert keyrings.of(USER).fingerprint == made.fingerprint
        assert keyrings.wrapping_name(USER) == name
        # Also what was kept: the secrets that come later open nothing any more.
        for path in files(tmp_path):
            assert path.read_bytes()[11] == secrets[0].wrapping
    # What came first is not left again for what comes later.
    with pytest.raises(Closed):
        Keyrings(tmp_path, KEYCHAIN).of(USER)
    assert Keyrings(tmp_path, OLD).of(USER).fingerprint == made.fingerprint


@pytest.mark.parametrize(("secret", "name"), [(KEYCHAIN, "keychain"), (TRANSIT, "vault")])
def test_without_the_secret_that_sealed_it_a_keyring_is_locked_and_nothing_takes_its_place(
    tmp_path: Path, secret: KeychainKey | TransitKey, name: str
) -> None:
    Keyrings(tmp_path, secret).of(USER)
    before = files(tmp_path)[0].read_bytes()
    for others in ([], [OLD]):
        with pytest.raises(Closed, match=name) as caught:
            Keyrings(tmp_path, *others).of(USER)
        assert caught.value.reason == "keyring_locked"
    assert [one.read_bytes() for one in files(tmp_path)] == [before]


def test_a_wrapping_key_has_32_bytes_and_does_not_print() -> None:
    for kind in (MachineKey, KeychainKey, TransitKey):
        with pytest.raises(ValueError, match="32 bytes"):
            kind(bytes(31))
        assert repr(bytes(range(32)))[2:-1] not in repr(kind(bytes(range(32))))
