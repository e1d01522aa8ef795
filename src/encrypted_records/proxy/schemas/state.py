"""The state of one schema as this proxy has verified it, and what follows from it.

A schema as the API shows it, unverified.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from encrypted_records.client.api import Api
from encrypted_records.errors import ApiFailed, BadInput, ErsError, LogBroken, time_of
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.order import LogHead, LogOlder
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model import ids
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.records import RowRef
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.offload import by_size
from encrypted_records.proxy.schemas.heads import AcceptedHead


@dataclass(frozen=True, slots=True)
class ShownSchema:
    """``definition`` counts until the log has a commit, or the roster the schema."""

    organization: bytes
    dataset: bytes
    slug: str
    name: str
    definition: SchemaDefinition


async def read_shown(api: Api, caller: Holder, schema: bytes) -> ShownSchema:
    """
    Raises:
        NotFound: the API knows no such schema, or not for this caller.
        ApiFailed: it is none of this version.
    """
    resource = await api.schema(schema, caller.auth)
    try:
        text = bytes(resource.schema)
        return ShownSchema(
            ids.from_reference(resource.organization, "organizations", pointer="/organization"),
            ids.from_reference(resource.dataset, "datasets", pointer="/dataset"),
            resource.slug,
            resource.name,
            await by_size(len(text))(parse_definition, text),
        )
    except BadInput:
        raise ApiFailed("the API's answer contains no schema of this version") from None


@dataclass
class SchemaState:
    """A schema as opened by one user's keyring. Change it only while holding ``lock``."""

    id: bytes
    #: whose definition counts until the log has a commit, or the roster the schema
    shown: ShownSchema
    ledger: Ledger
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: an earlier commit may or may not have been stored, or the log could not be followed; ask
    #: before drafting another
    uncertain: bool = False
    #: the API knows a newer roster than this proxy, or newer keys
    roster_moved: bool = False
    #: the entry of the roster by which this user was found to be free to store
    ready_at: int = 0
    #: how many commits of the log are kept on disk
    kept: int = 0
    #: version and key version of the newest checkpoint that is known, and of the last attempt at
    #: one: where the log stood
    checkpointed: tuple[int, int] = (0, 0)
    tried: tuple[int, int] = (0, 0)
    #: the digest of the newest that this process has written of it
    own_checkpoint: bytes = b""

    @property
    def definition(self) -> SchemaDefinition:
        """The definition by the log; before its first commit nothing can prove it."""
        return self.ledger.definition or self.shown.definition


@dataclass(frozen=True, slots=True)
class SoundPart:
    """The authentic part of a schema's log, whatever comes after it.

    ``ledger`` belongs to the caller. ``broken`` says why it ends early; it is None if the ledger
    reaches the end. ``seen`` is what this proxy has seen of the log before.
    """

    definition: SchemaDefinition
    ledger: Ledger
    broken: ErsError | None
    seen: LogHead | None
    #: id of the newest commit of the ledger, which holds a time
    newest: bytes | None

    @property
    def fault(self) -> ErsError | None:
        """The fault of the log; None where it has none."""
        lacks = self.seen is not None and not self.ledger.knows(self.seen)
        return self.broken or (lacking() if lacks else None)


class EndedRows(Protocol):
    """A store of sealed rows, from which deleted and replaced ones are removed."""

    def forget(self, schema: bytes, snapshot: Snapshot, rows: Iterable[RowRef]) -> None:
        """Keep nothing of these rows any more."""

    def forget_between(self, schema: bytes, numbers: range) -> None:
        """Discard all remembered rows with these numbers, because they are in other groups now."""

    def forget_segments(self, uids: Collection[bytes]) -> None:
        """Keep no page of these segments any more."""


def not_shown() -> LogBroken:
    """The error of a log that is older than what was seen, and not shown to be a part of that."""
    return LogBroken(
        "the log is not shown to be an earlier state of what this proxy has seen",
        hint="use another copy: this one has other commits, or too many are missing",
    )


def lacking(accepted: Sequence[AcceptedHead] = (), *, is_fork: bool = False) -> LogBroken:
    """The error of a log that lacks commits which a user of this proxy has seen.

    Args:
        accepted: of other users of this proxy, who took a log instead of what they had seen.
        is_fork: whether it has other commits in their place.
    """
    message = "the API's log lacks commits that this proxy has seen"
    if accepted:
        newest = accepted[0]
        when = time_of(newest.time / 1000)
        who = "another user" if newest.writer else "a reader"
        message += (
            f"; {who} of this proxy accepted version {newest.head.version} of it at {when},"
            " which does not count for others"
        )
    return LogBroken(message) if is_fork else LogOlder(message)


def may_write(caller: Holder, ledger: Ledger) -> bool:
    """Whether the caller may write the schema of a log, by the roster that this proxy believes;
    true where the organization has none."""
    by = ledger.membership
    return by is None or by.roster.may_write(caller.user, ledger.keys.schema)
