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
