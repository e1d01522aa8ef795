"""What a proxy keeps on disk keeps to its budget."""

from __future__ import annotations

from pathlib import Path

from encrypted_records.proxy.search.caches import DiskCache


def test_sealed_pages_of_different_sizes_keep_to_their_budget(tmp_path: Path) -> None:
    stored = DiskCache(tmp_path / "pages.sqlite3", 10_000)
    for number in range(100):
        stored.put(b"schema", {number: bytes(number * 10)})
        assert stored.use.bytes <= 10_000
    assert stored.use.bytes == sum(map(len, stored.get(b"schema", range(100)).values()))
    stored.put(b"schema", {99: b"smaller"})
    assert stored.use.bytes == sum(map(len, stored.get(b"schema", range(100)).values()))
    stored.drop_some(b"schema", [99])
    stored.drop([b"schema"])
    assert stored.use == (stored.use.__class__)(0, 0, stored.use.hits, stored.use.misses)
    stored.close()


def test_what_was_dropped_is_in_no_file_of_the_cache(tmp_path: Path) -> None:
    stored = DiskCache(tmp_path / "pages.sqlite3", 1 << 20)
    needles = {number: b"the row %03d " % number * 30 for number in range(60)}
    stored.put(b"schema", needles)
    stored.put(b"other", {1: b"stays"})

    def found() -> set[bytes]:
        stored.empty_log()
        files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        return {needle for needle in [*needles.values(), b"stays"] if needle[:20] in files}

    assert found() == {*needles.values(), b"stays"}
    stored.drop_some(b"schema", [3])
    stored.put(b"schema", {4: b"fewer rows of a block"})
    assert found() == {*needles.values(), b"stays"} - {needles[3], needles[4]}
    stored.drop_between(b"schema", 0, 30)
    stored.drop([b"schema"])
    assert found() == {b"stays"}
    stored.close()
