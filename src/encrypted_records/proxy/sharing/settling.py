"""Pending changes that owners' proxies apply; and sharing as other parts of the proxy use it.

The changes admit invited users who answered, remove expired services, and rotate keys that are due.
No list of pending changes is kept: they follow from the roster and from the answers that the API
shows, so the next proxy of an owner completes an interrupted change.

A proxy acts only with a caller's credentials, so :class:`Attending` checks for pending changes
while it answers an owner's requests: at most once a minute for each owner, concurrently with the
request. It does what ``settle`` does and signs nothing that does not follow from the roster; a
change that fails is tried again a minute later. The minute begins with the first request, so a
single command costs nothing.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from encrypted_records import runtime
from encrypted_records.client.rosters import RosterApi
from encrypted_records.client.transport import Transport
from encrypted_records.crypto.keys import DatasetKey
from encrypted_records.errors import ApiFailed, Closed, Conflict, ErsError, NotFound, Unavailable
from encrypted_records.index.roster.access import admit, prove_keys
from encrypted_records.index.roster.roster import Roster, due_datasets, due_services
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.process import ATTENDING, Background
from encrypted_records.proxy.rosters import Rosters
from encrypted_records.proxy.sharing.changes import (
    OwnGrants,
    RosterChanges,
    RosterDraft,
    no_roster,
    require_owner_now,
)
from encrypted_records.proxy.sharing.founding import Founding, Naming, grant_holders
from encrypted_records.proxy.sharing.joining import Inviting, Recovering
from encrypted_records.proxy.sharing.members import Asking, Forgetting, Members, ServiceMaking
from encrypted_records.proxy.sharing.reading import Rollbacks, RosterFinder, RosterReader, View
from encrypted_records.proxy.sharing.shown_names import ShownNames
from encrypted_records.rules.roster_state import Epoch, Member, SchemaEntry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VerifiedHead:
    """A version of a log and its running digest; 0 and zero bytes before its first commit."""

    version: int
    digest: bytes


class LogHeads(Protocol):
    """Verified heads of logs. A head that only the API reports is never used: signed as an end, it
    could close a schema to all members.
    """

    async def read_before(self, holder: Holder, schema: bytes, epoch: int) -> VerifiedHead:
        """The head of a schema's log when an epoch of its dataset's keys began, or the current head
        if the epoch begins now; read now and verified from the log's beginning.

        Raises:
            ErsError: the API does not show the log, or its log does not verify.
        """

    async def remembered(self, holder: Holder, schema: bytes) -> VerifiedHead | None:
        """The newest head of a schema's log that this proxy has verified, without a request to the
        API; None if there is none.

        Raises:
            ErsError: the disk cannot be read.
        """


#: How often a log that has moved is read again before an epoch begins without its end, and how
#: often its end is then signed separately. Under an honest API, logs no longer move at that point.
_HEADS_READ = 3
#: Bytes of an entry that are reserved for everything but its ends, and the maximum size of an end.
_ROOM, _END_BYTES = 2048, 72
_MOST_ENDS = (form.MAX_ENTRY_BYTES - _ROOM) // _END_BYTES
_SCHEMA = re.compile(rf"/api/schemas/({ids.PATTERN})/")


@dataclass(frozen=True, slots=True)
class Trouble:
    """A change that could not be applied, and the reason. ``name`` is the name of a member or a
    dataset, or those of a dataset and its schema, separated by a slash.
    """

    name: str
    error: ErsError


@dataclass(slots=True)
class AppliedChanges:
    """Changes that were applied: names of the admitted and the removed, datasets with new keys."""

    admitted: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    rotated: list[str] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _LogEnds:
    """Ends of logs, and for the other logs the reason why the API does not show an end."""

    ends: dict[bytes, form.End]
    silent: dict[bytes, ErsError]


@dataclass(eq=False, repr=False)
class Settling:
    _api: RosterApi
    _keyrings: Keyrings
    _reader: RosterReader
    _changes: RosterChanges
    _grants: OwnGrants
    _heads: LogHeads
    _certain: Callable[[], Awaitable[float]]

    async def settle(self, holder: Holder, organization: bytes) -> AppliedChanges:
        """Apply all pending changes that can be applied; a failed change does not stop the others.

        Raises:
            NotAllowed: ``owners_only``, ``not_admitted``.
            ErsError: as :meth:`RosterReader.read`; the API cannot be reached.
        """
        done = AppliedChanges()
        await self._follow_own_keys(holder, organization)
        await self._changes.change(holder, organization, require_owner_now)
        view = await self._view(holder, organization)
        # An answer that the API withholds admits nobody; its invitation is shown as waiting. An
        # invented answer is refused, and costs some requests.
        answers = await self._api.answers(organization, holder.auth)
        for answer in answers[: len(view.roster.invitations())]:
            await self._admit(holder, organization, answer, done)
        view = await self._view(holder, organization)
        for service in await self.due_services(view.roster):
            await self._remove(holder, organization, service.member, done)
        view = await self._view(holder, organization)
        for due in due_datasets(view.roster):
            named = view.roster.dataset(due.dataset)
            name = named.name if named is not None else ""
            try:
                if due.losses and await self.rotate(
                    holder, organization, due.dataset, due=due.epoch
                ):
                    done.rotated.append(name)
                done.troubles += await self._end_open_logs(holder, organization, due.dataset)
            except Unavailable:
                raise
            except ErsError as error:
                done.troubles.append(Trouble(name, error))
        return done

    async def due_services(self, roster: Roster) -> list[Member]:
        """Services to be removed. A removal cannot be undone, so none rests on a doubtful clock.

        Raises:
            OutOfSpace, Unavailable: the time seen last cannot be read or stored.
        """
        return due_services(roster, int(await self._certain()))

    async def _view(self, holder: Holder, organization: bytes) -> View:
        view = await self._reader.read(holder, organization)
        assert view is not None, "a roster that was changed is there"
        return view

    async def _admit(
        self, holder: Holder, organization: bytes, answer: form.Answer, done: AppliedChanges
    ) -> None:
        async def plan(draft: RosterDraft) -> str:
            draft.require_owner()
            invitation = draft.roster.invitation(answer.id)
            if invitation is not None and not invitation.open:
                return ""
            standing = admit(draft.roster, answer, draft.now)
            draft.sign(standing)
            for dataset in {share.dataset for share in standing.shares}:
                keys = await self._grants.whole(draft.view, dataset)
                draft.grant(standing.member, dataset, keys)
            return standing.name

        try:
            name = await self._changes.change(holder, organization, plan)
        except Unavailable:
            raise
        except ErsError as error:
            view = await self._view(holder, organization)
            invitation = view.roster.invitation(answer.id)
            named = invitation.content.name if invitation is not None else ids.to_text(answer.id)
            done.troubles.append(Trouble(named, error))
        else:
            if name:
                done.admitted.append(name)

    async def _remove(
        self, holder: Holder, organization: bytes, member: bytes, done: AppliedChanges
    ) -> None:
        async def plan(draft: RosterDraft) -> str:
            standing = draft.roster.member(member)
            if standing is None or not standing.present:
                return ""
            draft.sign(form.Remove(member))
            return standing.name

        name = await self._changes.change(holder, organization, plan)
        if name:
            done.removed.append(name)

    async def rotate(
        self, holder: Holder, organization: bytes, dataset: bytes, *, due: int | None = None
    ) -> bool:
        """Begin the next epoch of a dataset's keys, with grants for all remaining members; returns
        whether this proxy began it.

        Args:
            due: the epoch that has to end; where it has ended already, nothing is done. None: end
                the current epoch.

        Raises:
            NotFound: the organization's roster has no such dataset.
            NotAllowed, ErsError: as :meth:`RosterChanges.change`.
        """
        left_out: set[bytes] = set()
        for attempt in range(_HEADS_READ + 2):
            view = await self._reader.read(holder, organization)
            if view is None:
                raise no_roster()
            wanted = [
                schema.schema
                for schema in view.roster.schemas(dataset)
                if schema.slug and schema.schema not in left_out
            ]
            present = view.roster.epoch(dataset)
            epoch = 1 if present is None else present.epoch + 1
            found = await self._read(holder, wanted[:_MOST_ENDS], epoch)
            ends = {**await self._remembered(holder, view.roster, found.silent), **found.ends}

            async def plan(draft: RosterDraft, ends: Mapping[bytes, form.End] = ends) -> bool:
                return await self._begin(draft, dataset, due, ends)

            try:
                return await self._changes.change(holder, organization, plan)
            except Conflict as error:
                if error.reason != "log_moved":
                    raise
                if attempt + 1 >= _HEADS_READ:
                    left_out |= _named(error) or set(wanted)
                if attempt >= _HEADS_READ:
                    # A different log moved each time: their ends are signed once the epoch has
                    # begun, when logs no longer move.
                    left_out |= set(wanted)
        raise Conflict("the logs of the dataset's schemas keep changing", code="log_moved")

    async def _begin(
        self, draft: RosterDraft, dataset: bytes, due: int | None, ends: Mapping[bytes, form.End]
    ) -> bool:
        draft.require_owner()
        named, present = draft.roster.dataset(dataset), draft.roster.epoch(dataset)
        if named is None or present is None:
            raise NotFound(
                "the organization's roster has no such dataset",
                hint="store a record in it through an owner's proxy, or share it: then it has keys",
            )
        if due is not None and present.epoch != due:
            return False
        epoch = present.epoch + 1
        key = DatasetKey.generate(draft.view.organization, dataset, epoch)
        keys = {**await self._grants.whole(draft.view, dataset), epoch: key}
        # Schemas that were deleted or moved since the heads were read are not in the dataset.
        schemas = {schema.schema for schema in draft.roster.schemas(dataset)}
        kept = [end for schema, end in sorted(ends.items()) if schema in schemas]
        draft.sign(form.DatasetName(dataset, named.slug, named.name, epoch, key.commitment, kept))
        grant_holders(draft, dataset, keys)
        return True

    async def _read(self, holder: Holder, schemas: Iterable[bytes], epoch: int) -> _LogEnds:
        """Heads of logs when an epoch began, or the reason why the API does not show them."""
        found = _LogEnds({}, {})
        for schema in schemas:
            try:
                head = await self._heads.read_before(holder, schema, epoch)
            except ErsError as error:
                if isinstance(error, Unavailable) and not isinstance(error, ApiFailed):
                    raise  # the API is unreachable for all changes
                log.warning("the API does not say how far a log goes: %s", error.reason)
                found.silent[schema] = error
            else:
                found.ends[schema] = form.End(schema, head.version, head.digest)
        return found

    async def _remembered(
        self, holder: Holder, roster: Roster, schemas: Iterable[bytes]
    ) -> dict[bytes, form.End]:
        """Heads of logs that this proxy has verified, at which an earlier epoch ends: no commits of
        that epoch can follow them, whatever the API hides.

        An honest API with outdated data refuses an end that is not in its log, and the log stays
        open. An API that accepts the end loses data that others have stored since, with a named
        error.
        """
        found: dict[bytes, form.End] = {}
        for schema in schemas:
            head = await self._heads.remembered(holder, schema)
            before = roster.ends(schema)[-1:]
            # A proxy that was offline while another owner's proxy continued has no head to
            # contribute.
            if head is not None and all(end.version <= head.version for end in before):
                found[schema] = form.End(schema, head.version, head.digest)
        return found

    async def _end_open_logs(
        self, holder: Holder, organization: bytes, dataset: bytes
    ) -> list[Trouble]:
        """End the logs that the newest epoch left open. Logs that cannot be ended are reported and
        stay pending.

        Raises:
            ErsError: as :meth:`RosterChanges.change`, but for ``log_moved``.
        """
        refused: dict[bytes, ErsError] = {}
        tried: Counter[bytes] = Counter()
        while True:
            view = await self._view(holder, organization)
            open_logs, present = view.roster.open(dataset), view.roster.epoch(dataset)
            wanted = [log.schema for log in open_logs if log.schema not in refused][:_MOST_ENDS]
            if not wanted or present is None:
                return [_open_log(view.roster, log, refused[log.schema]) for log in open_logs]
            found = await self._read(holder, wanted, present.epoch)
            refused |= found.silent

            async def plan(
                draft: RosterDraft,
                ends: Mapping[bytes, form.End] = found.ends,
                epoch: Epoch = present,
            ) -> None:
                self._end(draft, dataset, epoch, ends)

            tried.update(list(found.ends))
            try:
                if found.ends:
                    await self._changes.change(holder, organization, plan)
            except Conflict as error:
                if error.reason != "log_moved":
                    raise
                moved = _named(error) & found.ends.keys() or set(found.ends)
                refused |= {schema: error for schema in moved if tried[schema] >= _HEADS_READ}

    def _end(
        self, draft: RosterDraft, dataset: bytes, epoch: Epoch, ends: Mapping[bytes, form.End]
    ) -> None:
        draft.require_owner()
        named, present = draft.roster.dataset(dataset), draft.roster.epoch(dataset)
        left = {schema.schema for schema in draft.roster.open(dataset)}
        kept = [end for schema, end in sorted(ends.items()) if schema in left]
        # Another owner may have begun another epoch, or ended these logs.
        if named is None or present != epoch or not kept:
            return
        entry = (named.slug, named.name, epoch.epoch, epoch.commitment, kept)
        draft.sign(form.DatasetName(dataset, *entry))

    async def _follow_own_keys(self, holder: Holder, organization: bytes) -> None:
        """Let an owner's identity follow a rotated keyring once its backup is confirmed: before
        that, the recovery phrase that the owner kept would no longer open the identity.
        """

        async def plan(draft: RosterDraft) -> None:
            keyring, view = draft.view.keyring, draft.view
            version = keyring.newest
            standing = draft.standing(view.user)
            if not standing.owns or view.believed.version == version:
                return
            if await runtime.in_thread(self._keyrings.backups.missing, view.user, keyring):
                return
            # Grants are opened before the entry is signed, with the keys that they were encrypted
            # to.
            keys_by_dataset = {
                dataset.dataset: await self._grants.whole(view, dataset.dataset)
                for dataset in draft.roster.datasets()
                if dataset.slug
            }
            root = keyring.root(version)
            identity = root.identity(view.organization, view.user, version)
            anchor = root.anchor(view.organization, view.user, version)
            proven = prove_keys(identity, anchor, draft.roster.found, view.user)
            restated = form.MemberStanding(
                view.user, form.PERSON, form.OWNER, standing.name, *proven, b"", 0, []
            )
            draft.sign(restated)
            draft.identity = identity
            for dataset, keys in keys_by_dataset.items():
                draft.grant(view.user, dataset, keys)

        await self._changes.change(holder, organization, plan)


def _open_log(roster: Roster, schema: SchemaEntry, error: ErsError) -> Trouble:
    dataset = roster.dataset(schema.dataset)
    name = schema.name if dataset is None else f"{dataset.name}/{schema.name}"
    return Trouble(
        name,
        Closed(
            "members who lost the right to write here may still add records, because the API"
            f" does not say where its log ended: {error.message} ({error.reason})",
            code="log_open",
            hint="ers share settle closes the log as soon as the API shows it; if you deleted the"
            " schema, delete it once more, which frees its name",
        ),
    )


async def _by_this_clock() -> float:
    return runtime.wall()


def _named(error: Conflict) -> set[bytes]:
    """The schemas that a ``log_moved`` names."""
    found = (_SCHEMA.search(flaw.detail) for flaw in error.flaws)
    return {ids.from_text(match[1]) for match in found if match is not None}


EVERY_SECONDS = 60.0
#: Users whose last check is remembered; a user beyond that limit starts a new minute.
_KEPT = 1000
#: Maximum number of a user's organizations that are checked.
_MOST_ORGANIZATIONS = 20


class Attending:
    def __init__(
        self,
        api: RosterApi,
        reader: RosterReader,
        settling: Settling,
        background: Background,
        interval: float = EVERY_SECONDS,
    ) -> None:
        self._api = api
        self._reader = reader
        self._settling = settling
        self._background = background
        self._interval = interval
        #: when the next check of each user is due
        self._due: dict[bytes, float] = {}

    def notice(self, holder: Holder) -> None:
        """Check for pending changes on an owner's request, if the last check was at least a minute
        ago.
        """
        if holder.token is not None or holder.service is not None:
            return  # neither acts as an owner
        now = runtime.monotonic()
        due = self._due.get(holder.user)
        if due is not None and now < due:
            return
        if due is None and len(self._due) >= _KEPT:
            self._due.clear()
        self._due[holder.user] = now + self._interval
        if due is None and self._interval:
            return
        # A check opens an existing keyring and never registers a device for a new keyring.
        self._background.start(ATTENDING, partial(self._look, replace(holder, newcomer=None)))

    async def _look(self, holder: Holder) -> None:
        try:
            known = await runtime.in_thread(self._reader.rosters.organizations, holder.user)
        except ErsError:
            return  # a user's request reports the disk error
        for organization in known[:_MOST_ORGANIZATIONS]:
            try:
                await self._settle(holder, organization)
            except ErsError as error:
                log.info("pending changes of an organization are not applied: %s", error.reason)

    async def _settle(self, holder: Holder, organization: bytes) -> None:
        view = await self._reader.read(holder, organization)
        if view is None or not view.believed.standing.owns:
            return
        roster = view.roster
        if (
            await self._api.answers(organization, holder.auth)
            or await self._settling.due_services(roster)
            or due_datasets(roster)
        ):
            done = await self._settling.settle(holder, organization)
            log.info(
                "applied pending changes of an organization: admitted %d, removed %d, new keys %d,"
                " troubles %d",
                len(done.admitted),
                len(done.removed),
                len(done.rotated),
                len(done.troubles),
            )


class Sharing:
    """
    Args:
        heads: heads of logs, at which an epoch ends them.
        attend_seconds: minimum time between two checks for pending changes.
        certain: the latest time, in seconds since 1970, that is not in doubt.
    """

    def __init__(
        self,
        transport: Transport,
        keyrings: Keyrings,
        rosters: Rosters,
        heads: LogHeads,
        background: Background,
        attend_seconds: float = EVERY_SECONDS,
        certain: Callable[[], Awaitable[float]] = _by_this_clock,
    ) -> None:
        self.api = api = RosterApi(transport)
        self.reader = reader = RosterReader(api, keyrings, rosters)
        self.changes = changes = RosterChanges(api, reader)
        self.grants = grants = OwnGrants(api, reader)
        self.finder = finder = RosterFinder(reader)
        self.founding = Founding(api, keyrings, reader, changes, grants)
        self.settling = Settling(api, keyrings, reader, changes, grants, heads, certain)
        self.asking = Asking(api, reader, changes, finder)
        self.inviting = Inviting(api, keyrings, reader, changes)
        self.members = Members(changes, grants)
        self.naming = Naming(changes)
        self.forgetting = Forgetting(reader, changes, grants)
        self.recovering = Recovering(api, keyrings, reader)
        self.services = ServiceMaking(api, changes, grants)
        self.attending = Attending(api, reader, self.settling, background, attend_seconds)
        self.rollbacks = Rollbacks(reader, keyrings)
        self.shown_names = ShownNames(api, reader)

    async def organization_of(self, holder: Holder, dataset: bytes) -> bytes:
        """The organization of a dataset. The one that the API names counts only if no roster of the
        user's organizations has the dataset. Otherwise the API could name another organization of
        the user's, in which nothing is pending, so that a removed right would stay.

        Raises:
            Refused, Unavailable: as :meth:`RosterFinder.of_dataset`.
        """
        named = (await self.api.dataset(dataset, holder.auth)).organization
        shown = ids.from_reference(named, "organizations", pointer="/organization")
        view = await self.finder.of_dataset(holder, dataset, shown=shown)
        return shown if view is None else view.organization

    def forget_user(self, user: bytes) -> None:
        """Drop what was read and decrypted for a user whose keyring has changed."""
        self.reader.forget_user(user)
        self.grants.forget_user(user)
