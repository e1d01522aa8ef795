"""What a proxy holds of a large column's directory, and what a look into it costs.

The columns are of ``--rows`` rows, packed: different strings (a uuid as text), different numbers,
and strings of fifty values. Their pages are as many as pages of such values hold; only the first
and last keys of each are made. Printed are, of each column, its pages; the bytes of its directory
as it is stored, compressed; what it would take in memory whole, as it was held before outlines:
arrays of 64-byte keys, and an object for what each page is; what its outline takes; and the time of
the processor that it takes to read it from its pages again and to find a key.

    .venv/bin/python -m bench.directories --rows 16777216
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bench.support.table import Row, show
from encrypted_records.crypto.format import PAGE_DATA
from encrypted_records.index.columns import directory
from encrypted_records.index.columns.column import Edge, EntryBlock, Keys, key_type, run_starts
from encrypted_records.index.columns.directory import Directory, Outline
from encrypted_records.index.columns.packing import MAX_ENTRIES, Packer
from encrypted_records.index.columns.pages import CAPACITY, FIRST_GUESS, choose_fullest
from encrypted_records.index.segments.opened_header import PageRole
from encrypted_records.model.field_types.base import KeyKind

T = TypeVar("T")
LOOKS = 20_000


def strings(numbers: NDArray[np.uint64]) -> Keys:
    """Different 36 characters for different numbers, in their order."""
    rest = (numbers * np.uint64(0x9E3779B97F4A7C15)).tolist()
    hexes = (f"{one:016x}{more:016x}" for one, more in zip(numbers.tolist(), rest, strict=True))
    texts = (f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}" for h in hexes)
    return np.array([text.encode() for text in texts], key_type(KeyKind.TEXT))


def states(numbers: NDArray[np.uint64]) -> Keys:
    return np.array(
        [f"state {one:02}".encode() for one in numbers.tolist()], key_type(KeyKind.TEXT)
    )


def page_size(keys: Keys, rows: int) -> int:
    """How many of these neighbours fill a page."""
    ordinals = np.random.default_rng(7).integers(0, rows, len(keys)).astype(np.uint32)
    starts = run_starts(keys)
    for first, end in zip(starts.tolist(), [*starts[1:].tolist(), len(keys)], strict=True):
        # Rows of one value ascend over all rows.
        ordinals[first:end] = np.sort(ordinals[first:end])
    packer = Packer(EntryBlock(ordinals, keys[starts], starts.astype(np.uint32)))
    return choose_fullest(0, len(keys), min(FIRST_GUESS, len(keys)), packer.pack)[0]


def whole_bytes(built: Directory) -> int:
    """The arrays of a directory, and an object for what each page is."""
    arrays = (built.numbers, built.ends, built.firsts, built.lasts, built.runs, built.starts)
    numbers = built.numbers.tolist()
    tracemalloc.start()
    roles = {number: PageRole("field", PAGE_DATA, at) for at, number in enumerate(numbers)}
    objects, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(roles) == len(numbers)
    return objects + sum(array.nbytes for array in arrays)


def measure(
    label: str, kind: KeyKind, rows: int, values: NDArray[np.uint64], make: Callable[..., Keys]
) -> list[Row]:
    """``values`` are those of all rows, sorted."""
    middle = len(values) // 2
    size = page_size(make(values[middle : middle + MAX_ENTRIES]), rows)
    ends = np.append(np.arange(size, rows, size), rows).astype(np.uint32)
    begins = np.append(0, ends[:-1])
    starts = run_starts(values)
    listed = len(starts) <= directory.most_runs(rows)
    starts = starts if listed else starts[:0]
    built = Directory(
        absent=0,
        numbers=np.random.default_rng(11).permutation(len(ends) * 2)[: len(ends)].astype(np.uint32),
        ends=ends,
        firsts=make(values[begins]),
        lasts=make(values[ends - 1]),
        listed=listed,
        runs=make(values[starts]),
        starts=starts.astype(np.uint32),
    )
    stored = directory.encode(built, kind, packed=True)

    def read() -> Outline:
        pages = 2 * len(ends)
        return Outline.of(directory.decode(stored, kind, count=rows, pages=pages, packed=True))

    outline, seconds = timed(read)
    looked = [Edge(key, "left") for key in built.firsts[: min(LOOKS, len(ends))].tolist()]
    _, spent = timed(lambda: [outline.exact(edge) for edge in looked])
    return [
        Row(f"{label}: pages", f"{len(ends):,} of {size:,} rows"),
        Row("  stored", f"{len(stored) / 1e3:,.0f} kB, {-(-len(stored) // CAPACITY)} pages"),
        Row("  in memory, whole", f"{whole_bytes(built) / 1e3:,.0f} kB"),
        Row("  in memory, its outline", f"{outline.size / 1e3:,.0f} kB"),
        Row("  read again", f"{1e3 * seconds:.1f} ms"),
        Row("  a look into it", f"{1e6 * spent / len(looked):.1f} us"),
    ]


def timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.process_time()
    done = work()
    return done, time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1 << 24)
    rows = parser.parse_args().rows
    draw = np.random.default_rng(3)
    unique = np.unique(draw.integers(0, 2**63, rows + rows // 1000, dtype=np.uint64))[:rows]
    numbers = np.unique(draw.integers(0, 10**12, rows + rows // 100, dtype=np.uint64))[:rows]
    few = np.sort(draw.integers(0, 50, rows, dtype=np.uint64))
    show("different strings", measure("strings", KeyKind.TEXT, rows, unique, strings))
    show("different numbers", measure("numbers", KeyKind.POINT, rows, numbers, np.copy))
    show("fifty values", measure("states", KeyKind.TEXT, rows, few, states))


if __name__ == "__main__":
    main()
