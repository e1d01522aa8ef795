"""How far each writer of a log has come."""

from __future__ import annotations

from dataclasses import dataclass

#: Stands before the first commit, of a log and of a writer.
EMPTY_DIGEST = bytes(32)


@dataclass(slots=True)
class Writer:
    """The counter and the digest of a writer's newest commit."""

    counter: int = 0
    digest: bytes = EMPTY_DIGEST
