"""Which chunks of a job are packed together."""

from __future__ import annotations

from itertools import pairwise

from encrypted_records.proxy.jobs.packing import PACKING, plan_packs
from encrypted_records.proxy.workers import messages


def test_packs_are_neighbours_of_about_one_size_that_the_upload_alone_decides() -> None:
    def chunks(sizes: list[int]) -> list[messages.ChunkAt]:
        edges = [sum(sizes[:at]) for at in range(len(sizes) + 1)]
        return [
            messages.ChunkAt(at, 0, 0, first + 1, last)
            for at, (first, last) in enumerate(pairwise(edges))
        ]

    def counts(sizes: list[int], rows: int) -> list[int]:
        packs = plan_packs(chunks(sizes), rows)
        assert [one.number for own in packs for one in own] == list(range(len(sizes)))
        return [len(own) for own in packs]

    assert counts([], 10) == []
    assert counts([3], 10) == [1]
    assert counts([5] * 4, 10) == [2, 2]
    assert counts([5] * 5, 10) == [1, 2, 2]
    assert counts([20] * 3, 10) == [1, 1, 1]
    large = counts([1 << 16] * 33, PACKING.rows)
    assert large == [11, 11, 11]
    # None of them is less than half full, so that it would soon be merged.
    for many in range(17, 200):
        assert min(counts([1 << 16] * many, PACKING.rows)) >= 8
