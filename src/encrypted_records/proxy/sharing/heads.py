"""Verified heads of schemas' logs, as this proxy has seen them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from encrypted_records.proxy.keyrings.holder import Holder


@dataclass(frozen=True, slots=True)
class VerifiedHead:
    """A version of a log and its running digest; 0 and zero bytes before its first commit."""

    version: int
    digest: bytes


class LogHeads(Protocol):
    """A head that is only the API's word would close a schema to everybody, so none is."""

    async def read_before(self, holder: Holder, schema: bytes, epoch: int) -> VerifiedHead:
        """The head of a schema's log when an epoch of its dataset's keys began, or now where it
        begins now; read now, and verified from the log's beginning.

        Raises:
            ErsError: the API does not show the log, or shows none that holds.
        """

    async def remembered(self, holder: Holder, schema: bytes) -> VerifiedHead | None:
        """The newest head of a schema's log that this proxy has verified, without asking the API;
        None where it never has.

        Raises:
            ErsError: the disk does not say.
        """
