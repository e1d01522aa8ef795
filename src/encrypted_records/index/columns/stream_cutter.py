"""Cut a streamed column (:mod:`.block_streams`) into data pages.

The pages are the same as those that :func:`.pages.cut` makes of the whole column. Only a window of
the column is in memory: the end of a page is chosen among at most as many entries as a page may
hold, so that the page can be cut as soon as that many have arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby

import numpy as np

from encrypted_records.index.columns import packing
from encrypted_records.index.columns.block_streams import join
from encrypted_records.index.columns.column import EntryBlock, Keys, key_type
from encrypted_records.index.columns.directory import MAX_RUNS, Directory, most_runs
from encrypted_records.index.columns.packing import MAX_ENTRIES, Packer
from encrypted_records.index.columns.pages import (
    FIRST_GUESS,
    choose_fullest,
    entries_per_page,
    lay_plain,
)
from encrypted_records.index.ordinals import Ordinals
from encrypted_records.model.field_types.base import KeyKind

#: The window, in the most entries of a page: the larger, the seldomer entries are looked at twice.
_PAGES_AT_ONCE = 4


class StreamCutter:
    """Cuts one column: :meth:`cut` all of it, then take :meth:`directory`."""

    def __init__(self, kind: KeyKind, most: int, *, packed: bool) -> None:
        """
        Args:
            most: entries that a page may hold, however many would fit.
        """
        self._kind: KeyKind = kind
        self._packed = packed
        self._most = min(most, MAX_ENTRIES)
        none: Keys = np.zeros(0, key_type(kind))
        self._absent = 0
        self._ends: list[int] = []
        self._firsts: list[Keys] = [none]
        self._lasts: list[Keys] = [none]
        self._runs: list[Keys] = [none]
        self._starts: list[Ordinals] = [np.zeros(0, np.uint32)]
        self._distinct = 0

    def cut(self, blocks: Iterable[EntryBlock]) -> Iterator[bytes]:
        """The content of each page."""
        for present, alike in groupby(blocks, lambda block: len(block.keys) > 0):
            most = self._most
            if not self._packed:
                most = min(most, entries_per_page(self._kind, present=present))
            yield from self._cut(alike, most)

    def _cut(self, blocks: Iterable[EntryBlock], most: int) -> Iterator[bytes]:
        guess = FIRST_GUESS
        held: list[EntryBlock] = []
        size = 0
        for block in chain(blocks, [None]):
            if block is not None:
                held.append(block)
                size += len(block.ordinals)
                if size < _PAGES_AT_ONCE * most:
                    continue
            if not size:
                return
            window, first = join(held), 0
            pack = _packer(window)
            while first < size and (block is None or size - first >= most):
                left = min(most, size - first)
                if self._packed:
                    guess, content = choose_fullest(first, left, min(guess, left), pack)
                else:
                    page = _part(window, first, first + left)
                    guess, content = left, lay_plain(page.ordinals, page.expand(), self._kind)
                self._note(_part(window, first, first + guess))
                first += guess
                yield content
            held = [_part(window, first, size)] if first < size else []
            size -= first

    def _note(self, page: EntryBlock) -> None:
        before = self._ends[-1] if self._ends else 0
        end = before + len(page.ordinals)
        self._ends.append(end)
        if not len(page.keys):
            self._absent = end
            return
        goes_on = self._distinct > 0 and bool(self._lasts[-1][0] == page.keys[0])
        # Copies: a part holds on to all that it is a part of.
        self._firsts.append(page.keys[:1].copy())
        self._lasts.append(page.keys[-1:].copy())
        self._distinct += len(page.keys) - goes_on
        if self._distinct <= MAX_RUNS:
            self._runs.append(page.keys[goes_on:].copy())
            self._starts.append(page.starts[goes_on:] + np.uint32(before - self._absent))
        else:
            del self._runs[1:], self._starts[1:]

    @property
    def pages(self) -> int:
        """The number of pages."""
        return len(self._ends)

    def directory(self, count: int) -> Directory:
        """The directory over ``count`` rows; page numbers are zero."""
        listed = self._distinct <= most_runs(count)
        return Directory(
            absent=self._absent,
            numbers=np.zeros(len(self._ends), np.uint32),
            ends=np.array(self._ends, np.uint32),
            firsts=np.concatenate(self._firsts),
            lasts=np.concatenate(self._lasts),
            listed=listed,
            runs=np.concatenate(self._runs if listed else self._runs[:1]),
            starts=np.concatenate(self._starts if listed else self._starts[:1]),
        )


def _packer(window: EntryBlock) -> Callable[[int, int], bytes]:
    if len(window.keys):
        return Packer(window).pack
    rows = window.ordinals
    return lambda first, last: packing.compress(packing.pack_ordinals(rows[first:last]))


def _part(window: EntryBlock, first: int, last: int) -> EntryBlock:
    if len(window.keys):
        return window.part(first, last)
    return EntryBlock(window.ordinals[first:last], window.keys, window.starts)
