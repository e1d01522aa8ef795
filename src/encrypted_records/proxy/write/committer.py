"""Send drafted commits, and add them to the ledgers they were drafted from.

A commit counts as stored when the ledger contains it, after commits that are all authentic, and not
when the API says so: commits after a broken commit cannot be read.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence

from encrypted_records import errors, runtime
from encrypted_records.client.api import Api
from encrypted_records.index.log.order import LogHead
from encrypted_records.index.segments.mini import Built
from encrypted_records.model import wire
from encrypted_records.model.records import CommitUpload
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.schemas.state import SchemaState
from encrypted_records.proxy.schemas.states import Schemas

log = logging.getLogger(__name__)


#: How often a commit that lost a race is drafted again.
ATTEMPTS = 5
#: Conflicts that say that a request was stored already, maybe through another proxy whose commits
#: are not in this ledger yet: once it has them, the log shows which request.
STORED_BEFORE = frozenset({"commit_reused", "record_exists"})
#: Conflicts with the state that a writer knew, and not with the change itself.
LOST_RACES = STORED_BEFORE | {
    *("stale_definition", "writer_conflict", "log_conflict", "log_moved"),
    *("key_mismatch", "roster_moved"),
}
#: The same for a change that ends rows.
ROW_RACES = LOST_RACES | {"row_not_live", "record_version"}
#: The same for what is staged, which may also have been published by a lost attempt.
STAGED_RACES = ROW_RACES | {"staging_gone"}
#: Conflicts with changes that others go on making for a while: to records of unique fields, or to
#: the roster while a member is removed. They do not count as failed attempts.
_ROSTER = frozenset({"roster_moved", "key_mismatch"})
_MOVING = _ROSTER | {"log_moved"}
#: Seconds before a change is drafted again while the roster changes.
_ROSTER_PAUSE = 0.05

#: Seconds that this machine's clock may be behind the API's if ids say how old records are, and
#: seconds until it is compared again.
_MOST_BEHIND, _RIGHT_SECONDS = 86_400, 600.0


class Committer:
    def __init__(
        self, api: Api, schemas: Schemas, keep: Callable[[SchemaState, Built], None]
    ) -> None:
        """
        Args:
            keep: called with each segment that was built here, once the API says that it has it.
        """
        self._api = api
        self._keep = keep
        self._schemas = schemas
        #: called with the caller and the state of the schema of each change
        self.notice: Callable[[Holder, SchemaState], None] = lambda _caller, _state: None
        #: until when this machine's clock is taken to be right, by time.monotonic
        self._right_until = 0.0

    async def prepare(
        self, caller: Holder, states: Sequence[SchemaState], *, adds: bool = False
    ) -> None:
        """Learn the outcome of earlier commits, and whether the caller may store. The states' locks
        are held, from here until the commits that are drafted next are stored.

        Args:
            adds: whether new records come, whose ids say when they were stored.

        Raises:
            Conflict: ``clock_wrong``; the records would seem old, and be deleted too early.
        """
        for state in states:
            if state.uncertain or _is_late(state):
                await self._schemas.catch_up(caller, state)
            await self._schemas.ready(caller, state)
            self.notice(caller, state)
        if adds and any(_go_by_age(state) for state in states):
            await self._require_clock()

    async def catch_up(self, caller: Holder, state: SchemaState) -> None:
        """Update ``state`` to the API's newest version; its lock is free.

        Raises:
            ErsError: as :meth:`Schemas.catch_up`.
        """
        async with state.lock:
            await self._schemas.catch_up(caller, state)

    async def _require_clock(self) -> None:
        if runtime.monotonic() < self._right_until:
            return
        api = await self._api.clock()
        if api is None or runtime.wall() < api - _MOST_BEHIND:
            why = "more than a day behind the API's" if api else "not known to be correct"
            raise errors.Conflict(
                f"records expire here, and this machine's clock is {why}: other proxies"
                " would delete what is stored now",
                code="clock_wrong",
                hint="set the clocks of this machine and of the API's machine, then try again",
            )
        self._right_until = runtime.monotonic() + _RIGHT_SECONDS

    async def store(
        self,
        caller: Holder,
        drafts: Sequence[tuple[SchemaState, CommitUpload]],
        *,
        built: Sequence[Built] = (),
        staging: bytes | None = None,
        because: str = "",
    ) -> None:
        """Store commits, all or none.

        Args:
            built: the segment of each commit, if they were built here.
            staging: the id under which their rows and pages are staged.
            because: the reason, for the API's audit log.

        Raises:
            Conflict: there is a newer state, or this state forbids it; or the roster has changed
                since the commits were drafted, and nothing is sent.
            Closed: the API took them, but its log does not prove it. The next attempt requests the
                log first, and sends nothing until it does. Or it said that it refused a commit that
                its log has: drafted again, the change would be made twice.
            Unavailable: it is not known whether they were stored: no answer came, or the caller was
                refused after an attempt without an answer.
        """
        if any(_is_late(state) for state, _ in drafts):
            # An API that takes it nevertheless would have records under a key that has ended.
            raise errors.Conflict("the organization's roster has changed", code="roster_moved")
        # If this is interrupted, the next attempt asks first whether the commits were stored.
        for state, _ in drafts:
            state.uncertain = True
        try:
            if staging is None:
                uploads = [upload for _, upload in drafts]
                receipts = await self._api.commit(uploads, caller.auth, because=because)
            else:
                commits = [upload.commit for _, upload in drafts]
                receipts = await self._api.publish(staging, commits, caller.auth)
        except errors.Unavailable as error:
            raise _unknown(error) from None
        except errors.ErsError as error:
            if error.repeated and not isinstance(error, errors.Conflict):
                # An earlier attempt may have been stored, before the caller lost the right to it.
                raise _unknown(error) from None
            if error.reason in _ROSTER:
                for state, _ in drafts:
                    state.roster_moved = True
            # After a lost race, the log is asked for what is staged before it is drafted again.
            if not error.repeated and (staging is None or error.reason not in STAGED_RACES):
                await self._require_unstored(caller, drafts)
            raise
        # Cached before the log names them: a query that reads the log finds them in memory.
        for (state, _), segment in zip(drafts, built, strict=bool(built)):
            self._keep(state, segment)
        unproven: list[errors.ErsError] = []
        for receipt, (state, upload) in zip(receipts, drafts, strict=True):
            try:
                await self._schemas.settle(caller, state, upload, receipt)
                state.uncertain = False
            except errors.ErsError as error:
                # The commits of other schemas are still settled.
                unproven.append(error)
        if unproven:
            raise _unproven(min(unproven, key=lambda error: not isinstance(error, errors.Closed)))

    async def _require_unstored(
        self, caller: Holder, drafts: Sequence[tuple[SchemaState, CommitUpload]]
    ) -> None:
        for state, upload in drafts:
            before = state.ledger.head
            digest = wire.next_log_digest(before.digest, upload.commit)
            try:
                await self._schemas.catch_up(caller, state)
            except (errors.NotAuthenticated, errors.NotAllowed, errors.NotFound):
                continue  # the caller may not even read the schema any more
            except (errors.Unavailable, errors.Throttled) as error:
                raise _unknown(error) from None
            if state.ledger.knows(LogHead(before.version + 1, digest)):
                raise errors.LogBroken(
                    "the API has stored a change that it said it had refused",
                    hint="check whether your change is stored before you repeat it",
                )


class ChangeAttempts:
    """The attempts at one change. Races that are lost to changes which others go on making for a
    while are not counted, see :func:`keeps_moving`."""

    def __init__(self, until: float, races: frozenset[str]) -> None:
        """
        Args:
            until: when to give up, by :func:`time.monotonic`.
            races: codes of the conflicts after which the change is drafted again.
        """
        self.left = ATTEMPTS
        self._until = until
        self._races = races

    async def lost(self, error: errors.Conflict) -> None:
        """Return when the change may be drafted again after this error.

        Raises:
            Conflict: the error itself, if that does not help, or no attempt is left.
        """
        if error.reason not in self._races:
            raise error
        if not await keeps_moving(error, self._until):
            self.left -= 1
            if not self.left:
                raise error
        log.info("a change lost a race (%s) and is drafted again", error.reason)


def staging_id(user: bytes, state: SchemaState, ended: Iterable[bytes]) -> bytes:
    """The same id for every attempt of a user at the same merge or compaction (docs/SPEC.md,
    sections 7.6 and 7.7.2).

    Args:
        ended: uids of the segments or groups that end.
    """
    return hashlib.sha256(b"".join((user, state.id, *ended))).digest()[:16]


async def keeps_moving(error: errors.Conflict, until: float) -> bool:
    """Whether a lost race is not a failed attempt; returns when the next attempt may begin.

    Args:
        until: when to give up, by :func:`time.monotonic`.
    """
    if error.reason not in _MOVING or runtime.monotonic() >= until:
        return False
    if error.reason in _ROSTER:
        await runtime.sleep(_ROSTER_PAUSE)
    return True


def _go_by_age(state: SchemaState) -> bool:
    rule = state.definition.retention
    return rule is not None and rule.field is None


def _is_late(state: SchemaState) -> bool:
    """Whether the roster has entries that a commit of this state would not name."""
    by = state.ledger.membership
    return state.roster_moved or (by is not None and by.moved)


def _unknown(error: errors.ErsError) -> errors.ErsError:
    """The error for commits without an answer, or refused only after some attempts."""
    kind = type(error) if isinstance(error, errors.Unavailable) else errors.Unavailable
    return kind(
        f"{error.message}; it is not known whether the change was stored",
        code=error.reason,
        retry_after=error.retry_after,
        hint="once the API answers again, check whether it was stored before you repeat it",
    )


def _unproven(error: errors.ErsError) -> errors.ErsError:
    """The error for commits that the API has, but that could not be added to the ledger."""
    if isinstance(error, errors.Closed):
        return type(error)(
            f"{error.message}; the API accepted the change, but nothing proves that it is stored",
            code=error.reason,
            hint=error.hint,
        )
    kind = type(error) if isinstance(error, errors.Unavailable) else errors.Unavailable
    return kind(
        f"{error.message}; the API accepted the change, but it could not be proven to be stored",
        code=error.reason,
        retry_after=error.retry_after,
        hint="check whether the change is stored before you repeat it",
    )
