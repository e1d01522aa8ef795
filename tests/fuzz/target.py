"""What a fuzz target is: a parser of what the other side sends, and the errors it may raise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from hypothesis import strategies as st

from encrypted_records.errors import ErsError


@dataclass(frozen=True)
class Target:
    """``run`` takes any bytes; beyond not crashing it asserts what must hold of what it accepts.

    The first of ``seeds`` is good input. ``inputs`` makes hostile input of seeds.
    """

    run: Callable[[bytes], None]
    may_raise: tuple[type[ErsError], ...]
    seeds: Sequence[bytes]
    inputs: Callable[[Sequence[bytes]], st.SearchStrategy[bytes]]

    @property
    def name(self) -> str:
        return self.run.__name__

    def survives(self, data: bytes) -> None:
        """Any other exception passes through, and is a finding."""
        with suppress(*self.may_raise):
            self.run(data)
