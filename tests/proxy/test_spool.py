"""Uploads on disk: what was acknowledged stays, nothing is in the clear, and nothing is made up."""

from __future__ import annotations

import os
import resource
import signal
import stat
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.crypto.keys import Keyring, RootKey
from encrypted_records.errors import DoesNotOpen, KeyMissing, NotFound, OutOfSpace
from encrypted_records.model.ids import new_id
from encrypted_records.proxy.spool import Spool
from tests.reference import profiles

__all__ = ["profiles"]

FRAME = 1 << 18
KEYRING = Keyring.generate()


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path, keep_free=0)


def new_upload(spool: Spool, *appends: bytes) -> bytes:
    upload = new_id()
    spool.create(upload, KEYRING)
    offset = 0
    for data in appends:
        offset = append(spool, upload, offset, data)
    return upload


def append(spool: Spool, upload: bytes, offset: int, data: bytes) -> int:
    with spool.append(upload, KEYRING, offset) as appending:
        appending.write(data)
        return appending.finish()


def content(spool: Spool, upload: bytes, size: int, start: int = 0) -> bytes:
    return b"".join(spool.read(upload, KEYRING, start=start, size=size))


def file_of(folder: Path) -> Path:
    (path,) = folder.glob("*.spool")
    return path


@given(
    st.lists(
        st.lists(st.integers(0, 3) | st.integers(FRAME - 2, FRAME + 2), max_size=3), max_size=4
    ),
    st.data(),
)
def test_what_was_written_in_any_portions_is_read_from_any_offset(
    tmp_path_factory: pytest.TempPathFactory, appends: list[list[int]], data: st.DataObject
) -> None:
    spool = Spool(tmp_path_factory.mktemp("spool"), keep_free=0)
    upload, expected = new_upload(spool), b""
    for portions in appends:
        if data.draw(st.booleans(), "restarted"):
            spool = Spool(spool.folder, keep_free=0)
        with spool.append(upload, KEYRING, len(expected)) as appending:
            for size in portions:
                portion = os.urandom(size)
                appending.write(portion)
                expected += portion
            assert appending.finish() == len(expected)
    start = data.draw(st.integers(0, len(expected)), "start")
    size = data.draw(st.integers(start, len(expected)), "size")
    assert content(spool, upload, size, start) == expected[start:size]
    assert Spool(spool.folder, keep_free=0).measure(upload, KEYRING) == len(expected)


def test_no_plaintext_is_in_the_file_and_only_its_owner_reads_it(
    spool: Spool, tmp_path: Path
) -> None:
    secret = b"Ada Lovelace, 36, diagnosis: "
    new_upload(spool, secret * 10_000, secret)
    path = file_of(tmp_path)
    assert secret[:12] not in path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_same_bytes_at_the_same_offset_are_never_sealed_alike(
    spool: Spool, tmp_path: Path
) -> None:
    upload = new_upload(spool, b"first")
    append(spool, upload, 5, b"again")
    once = file_of(tmp_path).read_bytes()
    append(spool, upload, 5, b"again")
    twice = file_of(tmp_path).read_bytes()
    assert len(once) == len(twice)
    # The second session ends in a salt of 32 bytes, a frame's 5, then ciphertext and tag.
    assert once[:-58] == twice[:-58]
    assert once[-58:-26] != twice[-58:-26]
    assert once[-21:-16] != twice[-21:-16]


@pytest.mark.parametrize("cut", [1, 16, 17, 24, 25, 57, 58])
def test_half_an_append_is_cut_off_and_another_takes_its_place(
    spool: Spool, tmp_path: Path, cut: int
) -> None:
    upload = new_upload(spool, b"acknowledged", b"lost")
    path = file_of(tmp_path)
    os.truncate(path, path.stat().st_size - cut)
    again = Spool(tmp_path, keep_free=0)
    assert again.measure(upload, KEYRING, at_least=12) == 12
    append(again, upload, 12, b" and more")
    assert content(again, upload, 21) == b"acknowledged and more"


def test_an_append_that_nobody_finished_counts_as_far_as_it_is_whole(
    spool: Spool, tmp_path: Path
) -> None:
    upload = new_upload(spool)
    data = os.urandom(20 * FRAME + 7)
    with spool.append(upload, KEYRING, 0) as appending:
        appending.write(data[:-7])
        appending.write(data[-7:])
    offset = spool.measure(upload, KEYRING)
    assert 0 < offset < len(data)
    assert content(spool, upload, offset) == data[:offset]
    append(spool, upload, offset, data[offset:])
    assert content(spool, upload, len(data)) == data


def test_a_page_that_never_reached_the_disk_ends_the_upload_before_it(
    spool: Spool, tmp_path: Path
) -> None:
    """After a power failure a file may be as long as it was and hold zeros."""
    upload = new_upload(spool, os.urandom(3 * FRAME))
    path = file_of(tmp_path)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - FRAME)
        file.write(bytes(4096))
    assert Spool(tmp_path).measure(upload, KEYRING) == 2 * FRAME


def test_less_than_what_was_acknowledged_is_damage(spool: Spool, tmp_path: Path) -> None:
    upload = new_upload(spool, b"acknowledged")
    os.truncate(file_of(tmp_path), 40)
    again = Spool(tmp_path)
    with pytest.raises(DoesNotOpen) as caught:
        again.measure(upload, KEYRING, at_least=12)
    assert caught.value.reason == "spool_damaged"
    assert again.measure(upload, KEYRING) == 0


def test_an_append_goes_on_only_where_one_has_ended(spool: Spool) -> None:
    upload = new_upload(spool, b"twelve bytes")
    for offset in (3, 13):
        with pytest.raises(DoesNotOpen, match="no append has ended"):
            spool.append(upload, KEYRING, offset)
    assert content(spool, upload, 12) == b"twelve bytes"


def test_discarded_bytes_are_gone_also_after_a_restart(spool: Spool, tmp_path: Path) -> None:
    upload = new_upload(spool, b"kept")
    with spool.append(upload, KEYRING, 4) as appending:
        appending.write(os.urandom(5 * FRAME))
        appending.discard()
    assert spool.measure(upload, KEYRING) == 4
    assert Spool(tmp_path).measure(upload, KEYRING) == 4
    append(spool, upload, 4, b", and extended")
    assert content(spool, upload, 18) == b"kept, and extended"


def test_one_upload_is_not_read_as_another_nor_by_another_keyring(
    spool: Spool, tmp_path: Path
) -> None:
    mine = new_upload(spool, b"mine")
    path = file_of(tmp_path)
    new_upload(spool, b"yours")
    theirs = next(one for one in tmp_path.glob("*.spool") if one != path)
    theirs.write_bytes(path.read_bytes())
    (yours,) = set(spool.uploads()) - {mine}
    with pytest.raises(DoesNotOpen, match="of another upload"):
        content(Spool(tmp_path), yours, 4)
    with pytest.raises(DoesNotOpen):
        list(spool.read(mine, Keyring.generate(), size=4))
    with pytest.raises(KeyMissing):
        list(spool.read(mine, Keyring({2: RootKey.generate()}), size=4))


def test_an_upload_outlives_a_new_version_of_its_keyring(spool: Spool) -> None:
    upload = new_upload(spool, b"before")
    rotated = Keyring({**KEYRING.roots, 2: RootKey.generate()})
    with spool.append(upload, rotated, 6) as appending:
        appending.write(b" and after")
        appending.finish()
    assert b"".join(spool.read(upload, rotated, size=16)) == b"before and after"


def test_a_deleted_upload_is_gone(spool: Spool, tmp_path: Path) -> None:
    upload = new_upload(spool, b"bytes")
    assert spool.uploads() == [upload]
    spool.delete(upload)
    spool.delete(upload)
    assert spool.uploads() == []
    assert list(tmp_path.iterdir()) == []
    for ask in (lambda: spool.measure(upload, KEYRING), lambda: content(spool, upload, 5)):
        with pytest.raises(NotFound):
            ask()


def test_a_joined_upload_reads_as_its_parts_which_may_be_deleted(
    spool: Spool, tmp_path: Path
) -> None:
    data = [os.urandom(FRAME + 5), os.urandom(3), b"", os.urandom(10)]
    parts = [(new_upload(spool, one), len(one)) for one in data]
    order = [parts[1], parts[0], parts[2], parts[1], parts[3]]
    expected = data[1] + data[0] + data[1] + data[3]
    joined = new_id()
    spool.join(joined, KEYRING, order)
    for part, _ in parts:
        spool.delete(part)
    again, size = Spool(tmp_path), len(expected)
    for start in (0, 2, 3, 4, FRAME + 8, FRAME + 10, size - 1, size):
        for end in (start, min(start + 5, size), size):
            assert content(again, joined, end, start) == expected[start:end]
    with pytest.raises(DoesNotOpen, match="shorter"):
        content(again, joined, size + 1)
    again.delete(joined)
    assert list(tmp_path.iterdir()) == []


def test_an_upload_is_not_joined_of_parts_that_are_not_there(spool: Spool) -> None:
    with pytest.raises(NotFound):
        spool.join(new_id(), KEYRING, [(new_id(), 5)])


def test_space_is_asked_for_before_anything_is_written(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.require_space(1)
    with pytest.raises(OutOfSpace, match="MiB more, because 256 MiB stay free"):
        spool.require_space(1 << 60)
    with pytest.raises(OutOfSpace):
        Spool(tmp_path, keep_free=1 << 60).require_space(1)


@pytest.fixture
def small_files() -> Iterator[int]:
    """A limit of the system's own on the size of files, which says no as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5 * FRAME, limits[1]))
    yield 5 * FRAME
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, before)


def test_a_full_disk_is_named_and_nothing_written_is_lost(
    spool: Spool, tmp_path: Path, small_files: int
) -> None:
    upload = new_upload(spool, b"acknowledged")
    data = os.urandom(2 * small_files)
    with spool.append(upload, KEYRING, 12) as appending, pytest.raises(OutOfSpace):
        for begin in range(0, len(data), FRAME):
            appending.write(data[begin : begin + FRAME])
    offset = spool.measure(upload, KEYRING, at_least=12)
    assert content(spool, upload, offset) == (b"acknowledged" + data)[:offset]
    assert append(spool, upload, 12, b" more") == 17
    assert content(spool, upload, 17) == b"acknowledged more"


def test_memory_does_not_grow_with_the_upload(spool: Spool) -> None:
    upload, piece = new_upload(spool), bytes(1 << 20)
    tracemalloc.start()
    try:
        with spool.append(upload, KEYRING, 0) as appending:
            for _ in range(48):
                appending.write(piece)
            appending.finish()
        read = sum(len(plain) for plain in spool.read(upload, KEYRING, size=48 << 20))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert read == 48 << 20
    assert peak < 8 << 20


def test_only_the_end_of_a_large_file_is_opened_after_a_restart(
    spool: Spool, tmp_path: Path
) -> None:
    upload = new_upload(spool, os.urandom(6 * FRAME))
    with file_of(tmp_path).open("r+b") as file:
        file.seek(FRAME // 2)
        file.write(bytes(100))
    assert Spool(tmp_path, doubtful=2 * FRAME).measure(upload, KEYRING) == 6 * FRAME
    with pytest.raises(DoesNotOpen):
        content(spool, upload, 6 * FRAME)
