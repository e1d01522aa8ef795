"""Where the log of a schema stands, as this proxy has verified it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from encrypted_records.proxy.keyrings.holder import Holder


@dataclass(frozen=True, slots=True)
class VerifiedHead:
    """Version and digest of the newest commit; 0 and zero bytes of a log without any."""

    version: int
    digest: bytes


class LogHeads(Protocol):
    async def __call__(self, holder: Holder, schema: bytes) -> VerifiedHead | None:
        """The head of a schema's log, read now and verified; None where that was not possible.

        A head that is only the API's word would close a schema to everybody, so there is none.
        """


async def no_heads(holder: Holder, schema: bytes) -> VerifiedHead | None:
    """Each log ends with its first commit of the new epoch."""
    return None
