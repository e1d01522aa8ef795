"""The memory that a merge takes of a column of words, beside that of a column of texts.

Segments of 65,536 rows are made, each row with ``--words`` different words drawn by Zipf's law from
``--vocabulary``, and merged as a worker merges them: as streams, with files for what waits. Memory
is the most that this process had beyond the sealed pages of the inputs.

    .venv/bin/python -m bench.word_merges --records 1000000 --words 24
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from pyroaring import BitMap

from bench.support.processes import memory_mib
from bench.support.table import Row, show
from encrypted_records.crypto.format import WORDS_FROM
from encrypted_records.crypto.keys import Keyring
from encrypted_records.index.columns import column as columns
from encrypted_records.index.columns.column import Column
from encrypted_records.index.segments.builder import Builder, Shell
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.merge import SegmentMerger
from encrypted_records.index.segments.mini import Built
from encrypted_records.index.segments.opened_header import OpenedHeader
from encrypted_records.model.definition import words_column
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.ids import new_id
from encrypted_records.proxy.workers.segments import SpooledContents

FIELDS = {"note": {"type": "string", "x-index": ["words"]}}
DEFINITION = parse_definition(json.dumps({"type": "object", "properties": FIELDS}))
KEY = Keyring.generate().schema(new_id(), new_id()).newest
ROWS = 1 << 16


def words_of(chance: np.random.Generator, rows: int, words: int, vocabulary: int) -> Column:
    """A column of words of so many rows, with room for twice as many as each has."""
    shares = 1 / np.arange(1, vocabulary + 1)
    drawn = chance.choice(vocabulary, (rows, words), p=shares / shares.sum())
    # As hashes have it: neighbours in order are neighbours by chance.
    keys = np.random.default_rng(1).integers(WORDS_FROM, 2**64 - 1, vocabulary, np.uint64)
    listed = np.repeat(np.arange(rows, dtype=np.uint32), words), keys[drawn.ravel()]
    pairs = np.unique(np.rec.fromarrays(listed[::-1]))
    heads = np.full(rows, 2 * words, np.uint64)
    ordinals = np.concatenate((np.arange(rows, dtype=np.uint32), pairs["f1"]))
    return Column(ordinals, np.concatenate((heads, pairs["f0"])))


def built(chance: np.random.Generator, first: int, rows: int, words: int, vocabulary: int) -> Built:
    builder = Builder(KEY, DEFINITION, Shell([(new_id(), 0)], np.arange(rows, dtype=np.uint32)))
    (spec,) = DEFINITION.fields.values()
    texts = [f"somebody wrote about number {first + row} and others" for row in range(rows)]
    builder.add(spec.name, columns.build(spec, KEY.field(spec), texts))
    builder.add(words_column(spec.name), words_of(chance, rows, words, vocabulary))
    return builder.finish()


class _Peak:
    """MiB beyond what there was when it was made."""

    def __init__(self) -> None:
        self._before = memory_mib("self", "VmRSS")
        # Linux forgets the peak so far.
        Path("/proc/self/clear_refs").write_text("5")

    def taken(self) -> float:
        return memory_mib("self", "VmHWM") - self._before


def measured(inputs: list[Built], folder: Path) -> Iterator[Row]:
    opened = [
        LoadedSegment(OpenedHeader(KEY, DEFINITION, source.segment, source.header))
        for source in inputs
    ]
    sealed = {
        source.segment.uid: {page.number: page.data for page in source.pages} for source in inputs
    }
    groups = [one.segment.groups for one in opened]
    contents = SpooledContents(folder, keep_free=0)
    none = [BitMap() for _ in opened]
    merging = SegmentMerger(KEY, DEFINITION, opened, groups, none, contents)
    for name in merging.fields:
        peak, began = _Peak(), time.process_time()
        for one in opened:
            for number in one.missing_directories([name]):
                one.put(number, sealed[one.segment.uid][number])
        entries = sum(one.directories[name].present for one in opened)
        merging.take(name, lambda segment, number: sealed[segment][number])
        seconds = time.process_time() - began
        yield Row(
            name.partition("\0")[2] or name,
            f"{peak.taken():,.0f} MiB",
            f"{entries:,} entries, {seconds:.1f} s",
        )
    peak = _Peak()
    made = merging.seal()
    pages = sum(1 for _ in made.pages)
    yield Row("sealing", f"{peak.taken():,.0f} MiB", f"{pages:,} pages")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=1 << 18)
    parser.add_argument("--words", type=int, default=24, help="of each record, some of them alike")
    parser.add_argument("--vocabulary", type=int, default=50_000)
    chosen = parser.parse_args()
    chance = np.random.default_rng(7)
    inputs = [
        built(chance, first, min(ROWS, chosen.records - first), chosen.words, chosen.vocabulary)
        for first in range(0, chosen.records, ROWS)
    ]
    with TemporaryDirectory() as folder:
        show(f"a merge of {chosen.records:,} records", list(measured(inputs, Path(folder))))


if __name__ == "__main__":
    main()
