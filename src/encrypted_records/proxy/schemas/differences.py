"""Differences between the API's view of a schema and what this proxy has seen or verified.

A log that lacks commits that were seen is refused: an API that hides commits looks just like an API
that was restored from a backup. Only people can decide which it is; so they see what would be lost,
and name the head that they accept. In the same way a user signs a schema as the API shows it, after
having checked the difference.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from encrypted_records.errors import Conflict, SchemaUnsigned
from encrypted_records.index.log.order import LogHead
from encrypted_records.model.ids import to_text
from encrypted_records.model.roster import Placement
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.schemas.state import SoundPart
from encrypted_records.proxy.schemas.states import Schemas, shown_otherwise, shown_placement
from encrypted_records.proxy.schemas.store import AcceptedHead, LogDifference, difference
from encrypted_records.proxy.sharing.founding import roster_missing
from encrypted_records.proxy.sharing.settling import Sharing

log = logging.getLogger(__name__)


#: ``whole``: it has everything that was seen. ``broken``: it cannot be read to its end.
State = Literal["whole", "broken"] | LogDifference


@dataclass(frozen=True, slots=True)
class LogComparison:
    """``common`` is the newest version that both are known to have. ``accepted`` is how the caller
    accepted this log instead of another, and ``others`` how other users of this proxy did, the
    newest first."""

    sound: SoundPart
    state: State
    common: int
    accepted: AcceptedHead | None
    others: Sequence[AcceptedHead]


class Standings:
    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    async def of(self, caller: Holder, schema: bytes) -> LogComparison:
        """The current standing of the log.

        Raises:
            ErsError: as :meth:`Schemas.sound_part`.
        """
        sound = await self._schemas.sound_part(caller, schema)
        ledger, seen = sound.ledger, sound.seen
        passed: list[LogHead] = []
        if seen is not None:
            passed = await self._schemas.list_passed(caller, schema, ledger.version)
        # If the log again has what was given up for it, nothing is missing any more.
        accepted = await self._schemas.acceptances(schema)
        accepted = [acceptance for acceptance in accepted if not ledger.knows(acceptance.seen)]
        by_caller = next(
            (acceptance for acceptance in accepted if acceptance.user == caller.user), None
        )
        others = [acceptance for acceptance in accepted if acceptance.user != caller.user]
        # Equal digests at one version mean equal logs up to there.
        common = next((head.version for head in passed if ledger.knows(head)), 0)
        state: State = "whole"
        if sound.broken is not None:
            state = "broken"
        elif seen is not None:
            state = difference(ledger, seen, passed) or "whole"
        return LogComparison(sound, state, common, by_caller, others)

    async def accept(
        self, caller: Holder, schema: bytes, head: LogHead, *, forked: bool = False
    ) -> LogComparison:
        """Accept the API's log as that of the schema, for the caller alone; returns the previous
        standing. The caller has given a proof.

        Args:
            head: the head of the log, as the accepting user has seen it.
            forked: whether the log may have other commits than those that were seen.

        Raises:
            Conflict: ``nothing_to_accept``, ``log_moved`` or ``log_forked``; nothing has changed.
            Closed: the log is broken, which cannot be accepted.
            ErsError: as :meth:`of`; also if the disk cannot store it.
        """
        standing = await self.of(caller, schema)
        sound, ledger = standing.sound, standing.sound.ledger
        if standing.state == "whole":
            raise Conflict(
                "the log contains everything that this proxy has seen of it",
                code="nothing_to_accept",
                hint="there is nothing to do; search and store as usual",
            )
        if sound.broken is not None:
            raise type(sound.broken)(
                f"the log cannot be followed beyond version {ledger.version}, and the rest"
                f" cannot be accepted: {sound.broken.message}",
                code=sound.broken.reason,
                hint="restore the API's newest backup, or save what can be decrypted: ers salvage",
            )
        if ledger.head != head:
            raise Conflict(
                f"the API's log is now at version {ledger.version}, or is a different log",
                code="log_moved",
                hint="check it again (ers schema status) before you accept it",
            )
        assert sound.seen is not None
        if standing.state != "older" and not forked:
            raise Conflict(_other_way(standing), code="log_forked", hint=_FORKED_HINT)
        await self._schemas.accept(caller, ledger, sound.seen)
        log.warning(
            "user %s accepts another log of schema %s: version %d (%s) instead of %d (%s), of"
            " which it has the first %d",
            to_text(caller.user),
            to_text(schema),
            head.version,
            head.digest.hex(),
            sound.seen.version,
            sound.seen.digest.hex(),
            standing.common,
        )
        return standing


_FORKED_HINT = (
    "find out who changed the schema since, and compare heads with them (ers schema status);"
    " to accept the log anyway: ers schema accept-log --forked, or forked in the request"
)


def _other_way(standing: LogComparison) -> str:
    ledger, seen = standing.sound.ledger, standing.sound.seen
    assert seen is not None
    if standing.state == "forked":
        return (
            f"up to version {standing.common} the log is the one that this proxy has seen,"
            f" and then a different one: {ledger.version - standing.common} commits instead"
            f" of {seen.version - standing.common}"
        )
    return (
        f"the log ends before version {seen.version}, and this proxy cannot tell whether it"
        " is the beginning of the log that it has seen"
    )


@dataclass(frozen=True, slots=True)
class StateDifference:
    """The signed state of a schema, None if nothing was signed, and the state that the API
    shows.
    """

    signed: Placement | None
    shown: Placement

    @property
    def members(self) -> list[str]:
        """Members that differ, among slug, name and definition."""
        names = ("slug", "name", "definition")
        if self.signed is None or not self.signed.slug:
            return list(names)
        return [name for name in names if getattr(self.signed, name) != getattr(self.shown, name)]


class SchemaSigning:
    def __init__(self, schemas: Schemas, sharing: Sharing) -> None:
        self._schemas = schemas
        self._sharing = sharing

    async def compare(self, caller: Holder, schema: bytes) -> StateDifference:
        """The difference that signing would make.

        Raises:
            Closed: ``roster_missing``; the organization has records, and no roster.
            SchemaUnsigned: the schema has records although the roster never had it, or it was moved
                to another dataset: signing would accept the API's claims about the records.
            ErsError: as for :meth:`Schemas.refresh`.
        """
        self._schemas.forget(caller, [schema])
        state = await self._schemas.refresh(caller, schema)
        by = state.ledger.membership
        if by is None and state.ledger.version:
            raise roster_missing()
        placed = None if by is None else by.roster.schema(schema)
        now = shown_placement(by, state)
        if placed is None:
            if state.ledger.version:
                raise SchemaUnsigned("it has records, and was never in the roster")
            return StateDifference(None, now)
        if placed.dataset != now.dataset:
            raise SchemaUnsigned("the API shows it in another dataset than the signed one")
        return StateDifference(placed.placement, now)

    async def sign(
        self, caller: Holder, schema: bytes, seen: Sequence[str] | None = None
    ) -> StateDifference:
        """Sign a schema as the API shows it; returns the change.

        Args:
            seen: slug, name and definition (the digest in hex) as the caller has agreed to them.

        Raises:
            NotAllowed: ``owners_only``, ``not_writer``, ``not_admitted``.
            Conflict: the API shows it differently now.
            ErsError: as :meth:`compare`.
        """
        difference = await self.compare(caller, schema)
        shown = difference.shown
        if seen is not None and list(seen) != [shown.slug, shown.name, shown.definition.hex()]:
            raise shown_otherwise()
        if difference.members:
            state = await self._schemas.refresh(caller, schema)
            by = state.ledger.membership
            if by is None or by.roster.dataset(shown.dataset) is None:
                async with state.lock:
                    await self._schemas.ready(caller, state, shown)
            else:
                await self._sharing.founding.place(caller, state.shown.organization, [shown])
            self._schemas.forget(caller, [schema])
        return difference
