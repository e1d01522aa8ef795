"""Passphrases are given, changed and taken back while the proxy runs; no record is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from encrypted_records.crypto.format import WRAP_VAULT
from encrypted_records.crypto.keys import Keyring
from encrypted_records.crypto.recovery import (
    KdfCost,
    KeychainKey,
    MachineKey,
    Passphrase,
    ServiceWrappingKey,
)
from encrypted_records.errors import Closed, Conflict, NotFound, OutOfSpace, Throttled
from encrypted_records.model.ids import new_id
from encrypted_records.proxy import disk as durable
from encrypted_records.proxy.keyrings.holder import LONGEST_SECONDS, Attempts, Holder
from encrypted_records.proxy.keyrings.store import UNLOCKED_SECONDS
from tests.support.keyrings import holder, keyrings_in

USER = new_id()


def quick(text: str) -> Passphrase:
    return Passphrase(text, cost=KdfCost(8192, 1, 1))


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
    fingerprint = keyrings_in(tmp_path, OLD).of(holder(USER)).fingerprint
    keyrings = keyrings_in(tmp_path)
    with pytest.raises(Closed) as caught:
        keyrings.of(holder(USER))
    assert caught.value.reason == "keyring_locked"
    assert "ers keyring unlock" in caught.value.hint

    assert keyrings.unlock(USER, OLD, device="device00", counted=b"").fingerprint == fingerprint
    assert keyrings.of(holder(USER)).fingerprint == fingerprint
    with pytest.raises(Closed):
        keyrings_in(tmp_path).of(holder(USER))
    # What is written now is sealed with what it was unlocked with.
    rotated = keyrings.changes.rotate(holder(USER))
    assert keyrings_in(tmp_path, OLD).of(holder(USER)).fingerprint == rotated.fingerprint

    keyrings.lock(holder(USER))
    with pytest.raises(Closed):
        keyrings.of(holder(USER))


def test_a_keyring_is_unlocked_on_the_device_that_typed_the_passphrase_and_on_no_other(
    tmp_path: Path,
) -> None:
    keyrings_in(tmp_path, OLD).of(holder(USER))
    clock = Clock()
    keyrings = keyrings_in(tmp_path, clock=clock)
    keyrings.unlock(USER, OLD, device="device00", counted=b"")

    for other in (holder(USER, "device01"), holder(USER, None)):
        for use in (
            keyrings.of,
            keyrings.existing,
            keyrings.changes.rotate,
            keyrings.check_unlocked,
        ):
            with pytest.raises(Closed) as caught:
                use(other)
            assert caught.value.reason == "keyring_locked"
    # Work that was accepted before goes on.
    keyrings.of(Holder.of_accepted_work(USER))

    clock.now += UNLOCKED_SECONDS - 1
    keyrings.of(holder(USER))
    clock.now += UNLOCKED_SECONDS - 1
    keyrings.of(holder(USER))
    clock.now += UNLOCKED_SECONDS + 1
    with pytest.raises(Closed):
        keyrings.of(holder(USER))
    with pytest.raises(Closed):
        keyrings.of(Holder.of_accepted_work(USER))


def test_after_the_time_that_is_set_a_keyring_leaves_the_memory_without_being_asked_for(
    tmp_path: Path,
) -> None:
    keyrings_in(tmp_path, OLD).of(holder(USER))
    clock = Clock()
    keyrings = keyrings_in(tmp_path, clock=clock, unlocked_seconds=300.0)
    keyrings.unlock(USER, OLD, device="device00", counted=b"")
    clock.now += 299
    keyrings.of(holder(USER))
    clock.now += 299
    assert keyrings.close_unused() == []
    assert keyrings.is_open(USER)
    clock.now += 2
    assert keyrings.close_unused() == [USER]
    assert not keyrings.is_open(USER)
    with pytest.raises(Closed) as caught:
        keyrings.of(holder(USER))
    assert caught.value.reason == "keyring_locked"
    assert keyrings.close_unused() == []


def test_what_opens_by_itself_is_not_locked_and_what_is_not_there_not_unlocked(
    tmp_path: Path,
) -> None:
    keyrings = keyrings_in(tmp_path, OLD)
    with pytest.raises(NotFound):
        keyrings.unlock(USER, OLD, device="device00", counted=b"")
    made = keyrings.of(holder(USER))
    assert not keyrings.is_own(USER)
    with pytest.raises(Conflict) as caught:
        keyrings.lock(holder(USER))
    assert caught.value.reason == "keyring_not_lockable"
    assert keyrings.of(holder(USER)) is made


def test_each_wrong_passphrase_doubles_the_wait_and_a_right_one_ends_it(tmp_path: Path) -> None:
    keyrings_in(tmp_path, OLD).of(holder(USER))
    clock = Clock()
    keyrings = keyrings_in(tmp_path, attempts=Attempts(clock=clock))
    for wait in (1, 2, 4, 8):
        with pytest.raises(Closed):
            keyrings.unlock(USER, WRONG, device="device00", counted=b"")
        # Not even the right one is looked at before its time; else waiting would tell it apart.
        for early in (WRONG, OLD):
            with pytest.raises(Throttled) as caught:
                keyrings.unlock(USER, early, device="device00", counted=b"")
            assert caught.value.retry_after == wait
        clock.now += wait
    keyrings.unlock(USER, OLD, device="device00", counted=b"")
    keyrings.lock(holder(USER))
    with pytest.raises(Closed):
        keyrings.unlock(USER, WRONG, device="device00", counted=b"")
    with pytest.raises(Throttled) as caught:
        keyrings.unlock(USER, OLD, device="device00", counted=b"")
    assert caught.value.retry_after == 1


def test_the_wait_has_an_end_and_is_each_users_own() -> None:
    clock = Clock()
    attempts = Attempts(clock=clock)
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
    keyrings = keyrings_in(tmp_path, OLD)
    for _ in range(2):
        keyrings.of(holder(USER))
        keyrings.changes.rotate(holder(USER))
    assert len(files(tmp_path)) == 3

    assert keyrings.changes.change_passphrase(holder(USER), OLD, NEW) == 0

    assert len(files(tmp_path)) == 3
    with pytest.raises(Closed):
        keyrings_in(tmp_path, OLD).of(holder(USER))
    assert (
        keyrings.of(holder(USER)).newest == keyrings_in(tmp_path, NEW).of(holder(USER)).newest == 3
    )
    (path,) = (file for file in files(tmp_path) if file.suffix == ".keyring")
    for kept in durable.list_kept(path):
        kept.replace(path)
        with pytest.raises(Closed):
            keyrings_in(tmp_path, OLD).of(holder(USER))
        assert keyrings_in(tmp_path, NEW).of(holder(USER))


def test_a_change_needs_the_present_passphrase_where_there_is_one(tmp_path: Path) -> None:
    keyrings = keyrings_in(tmp_path)
    keyrings.of(holder(USER))
    assert keyrings.changes.change_passphrase(holder(USER), None, OLD) == 0
    before = [file.read_bytes() for file in files(tmp_path)]
    with pytest.raises(Closed, match="current passphrase"):
        keyrings.changes.change_passphrase(holder(USER), None, NEW)
    with pytest.raises(Closed):
        keyrings.changes.change_passphrase(holder(USER), WRONG, NEW)
    with pytest.raises(Throttled):
        keyrings.changes.change_passphrase(holder(USER), OLD, NEW)
    assert [file.read_bytes() for file in files(tmp_path)] == before
    assert keyrings_in(tmp_path, OLD).of(holder(USER))


@pytest.mark.parametrize(
    ("device", "by_words", "stays"),
    [("device00", False, True), ("device00", True, False), ("device01", False, False)],
)
def test_a_restoration_is_under_a_passphrase_only_where_that_is_not_lost(
    tmp_path: Path, device: str, by_words: bool, stays: bool
) -> None:
    keyrings = keyrings_in(tmp_path)
    keyring = keyrings.of(holder(USER))
    keyrings.changes.change_passphrase(holder(USER), None, OLD)
    restoring = holder(USER, device)

    keyrings.changes.restore(restoring, keyring, replace=True, by_words=by_words)

    assert keyrings.of(restoring) is keyring
    assert keyrings.is_own(USER) is stays
    again = keyrings_in(tmp_path)
    if stays:
        with pytest.raises(Closed, match="passphrase"):
            again.of(restoring)
        again.unlock(USER, OLD, device=device, counted=b"")
    assert again.of(restoring).fingerprint == keyring.fingerprint


def test_a_restoration_that_is_refused_locks_nobody_out(tmp_path: Path) -> None:
    keyrings = keyrings_in(tmp_path)
    keyring = keyrings.of(holder(USER))
    keyrings.changes.change_passphrase(holder(USER), None, OLD)
    with pytest.raises(Conflict):
        keyrings.changes.restore(holder(USER, "device01"), Keyring.generate(), replace=False)
    assert keyrings.of(holder(USER)).fingerprint == keyring.fingerprint
    assert keyrings.is_own(USER)


def test_kept_files_of_another_passphrase_are_counted_and_left(tmp_path: Path) -> None:
    keyring = keyrings_in(tmp_path, quick("long forgotten")).of(holder(USER))
    keyrings = keyrings_in(tmp_path, OLD)
    keyrings.changes.restore(holder(USER), keyring, replace=True)
    (kept,) = (file for file in files(tmp_path) if file.suffix != ".keyring")
    before = kept.read_bytes()
    assert keyrings.changes.change_passphrase(holder(USER), OLD, NEW) == 1
    assert kept.read_bytes() == before


@pytest.mark.parametrize("broken_after", range(3))
def test_a_change_that_is_cut_short_loses_nothing_and_can_be_repeated(
    tmp_path: Path, broken_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyrings = keyrings_in(tmp_path, OLD)
    keyrings.of(holder(USER))
    for _ in range(2):
        keyrings.changes.rotate(holder(USER))
    replace = durable.replace
    done: list[Path] = []

    def failing(path: Path, content: bytes) -> None:
        if len(done) == broken_after:
            raise OSError(28, "No space left on device")
        done.append(path)
        replace(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "replace", failing)
        with pytest.raises(OutOfSpace):
            keyrings.changes.change_passphrase(holder(USER), OLD, NEW)

    again = keyrings_in(tmp_path, OLD)
    assert again.of(holder(USER)).newest == 3
    assert again.changes.change_passphrase(holder(USER), OLD, NEW) == 0
    assert keyrings_in(tmp_path, NEW).of(holder(USER)).newest == 3


#: Runs in a process of its own: what the limit does to a write is real, and ends there.
_WITH_A_FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from encrypted_records.crypto.format import WRAP_VAULT
from encrypted_records.crypto.keys import Keyring
from encrypted_records.crypto.recovery import KdfCost, Passphrase
from encrypted_records.errors import OutOfSpace
from tests.support.keyrings import holder, keyrings_in

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
user = bytes.fromhex(sys.argv[2])
old, new = (Passphrase(text, cost=KdfCost(8192, 1, 1)) for text in ("the old one", "the new one"))
keyrings = keyrings_in(Path(sys.argv[1]), old)
keyrings.of(holder(user))
resource.setrlimit(resource.RLIMIT_FSIZE, (60, 60))
for change in (
    lambda: keyrings.changes.change_passphrase(holder(user), old, new),
    lambda: keyrings.changes.rotate(holder(user)),
    lambda: keyrings.changes.restore(holder(user), keyrings.of(holder(user)), replace=True),
    lambda: keyrings.of(holder(bytes(16))),
):
    try:
        change()
    except OutOfSpace as error:
        print(error.message)
"""


def test_a_full_disk_is_named_and_every_keyring_stays_as_it_was(tmp_path: Path) -> None:
    before = keyrings_in(tmp_path, OLD).of(holder(USER))
    content = files(tmp_path)[0].read_bytes()

    done = subprocess.run(
        [sys.executable, "-c", _WITH_A_FULL_DISK, str(tmp_path), USER.hex()],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines() == ["the disk is full: the keyring is unchanged"] * 4
    assert keyrings_in(tmp_path, OLD).of(holder(USER)).fingerprint == before.fingerprint
    assert content in [file.read_bytes() for file in files(tmp_path)]
    assert not [file for file in files(tmp_path) if file.name.startswith(".")]


KEYCHAIN, TRANSIT = KeychainKey(os.urandom(32)), ServiceWrappingKey(WRAP_VAULT, os.urandom(32))


def test_files_under_a_secret_that_comes_later_are_sealed_with_the_preferred_one(
    tmp_path: Path,
) -> None:
    made = keyrings_in(tmp_path).of(holder(USER))
    steps: list[tuple[str, list[KeychainKey | ServiceWrappingKey | Passphrase]]] = [
        ("vault", [TRANSIT]),
        ("keychain", [KEYCHAIN, TRANSIT]),
        ("passphrase", [OLD, KEYCHAIN, TRANSIT]),
    ]
    for name, secrets in steps:
        keyrings = keyrings_in(tmp_path, *secrets)
        assert keyrings.of(holder(USER)).fingerprint == made.fingerprint
        assert keyrings.wrapping_name(USER) == name
        # Also what was kept: the secrets that come later open nothing any more.
        for path in files(tmp_path):
            assert path.read_bytes()[11] == secrets[0].wrapping
    # What came first is not left again for what comes later.
    with pytest.raises(Closed):
        keyrings_in(tmp_path, KEYCHAIN).of(holder(USER))
    assert keyrings_in(tmp_path, OLD).of(holder(USER)).fingerprint == made.fingerprint


@pytest.mark.parametrize(("secret", "name"), [(KEYCHAIN, "keychain"), (TRANSIT, "vault")])
def test_without_the_secret_that_sealed_it_a_keyring_is_locked_and_nothing_takes_its_place(
    tmp_path: Path, secret: KeychainKey | ServiceWrappingKey, name: str
) -> None:
    keyrings_in(tmp_path, secret).of(holder(USER))
    before = files(tmp_path)[0].read_bytes()
    for others in ([], [OLD]):
        with pytest.raises(Closed, match=name) as caught:
            keyrings_in(tmp_path, *others).of(holder(USER))
        assert caught.value.reason == "keyring_locked"
    assert [file.read_bytes() for file in files(tmp_path)] == [before]


def test_a_wrapping_key_has_32_bytes_and_does_not_print() -> None:
    for kind in (MachineKey, KeychainKey, partial(ServiceWrappingKey, WRAP_VAULT)):
        with pytest.raises(ValueError, match="32 bytes"):
            kind(bytes(31))
        assert repr(bytes(range(32)))[2:-1] not in repr(kind(bytes(range(32))))
