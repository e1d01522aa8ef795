"""The order of a log: its head, the writers that may commit and have, and the commits that may
follow.

If an organization has a roster, each commit names the roster entry that its writer had read. It is
valid only if the writer had the right to write the schema at that entry and signed the commit
(docs/SPEC.md, section 7.5). An epoch of the dataset's keys may state the head of the log at its
beginning: after it, commits of earlier epochs are invalid. Therefore a removed member cannot add
commits, not even under an old key and an old entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from encrypted_records.crypto.identity import Identity, MemberKeys
from encrypted_records.crypto.keys import LogKeys, SchemaKey
from encrypted_records.errors import Closed, LogBroken
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import wire
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.ids import milliseconds, new_id
from encrypted_records.model.records import Commit, CommitBody
from encrypted_records.model.roster import NO_DIGEST
from encrypted_records.model.signatures import require_shown
from encrypted_records.rules import commit_judging
from encrypted_records.rules.commit_judging import CommitFault, Log

NO_MEMBER = bytes(16)


@dataclass(slots=True)
class LogMembership:
    """The roster by which commits are checked, and the member that signs ours.

    The roster grows in place, with each reading. ``number`` does not change: our commits name this
    entry, and the log's keys were chosen by it.
    """

    roster: Roster
    member: bytes
    identity: Identity = field(repr=False)
    number: int = field(init=False)

    def __post_init__(self) -> None:
        self.number = self.roster.number

    @property
    def moved(self) -> bool:
        """Whether newer roster entries were read since, so that a commit of ours would be late."""
        return self.number != self.roster.number

    def renew(self, roster: Roster, number: int, identity: Identity) -> None:
        self.roster, self.number, self.identity = roster, number, identity


@dataclass(slots=True)
class Signing:
    """The signing state of one schema's log: statements of its signed commits so far.

    ``membership`` is None if the organization has no roster; then commits are not signed.
    """

    schema: bytes
    membership: LogMembership | None = None
    #: the roster entry that the newest commit's writer had read
    roster: int = 0
    #: the log version at which each epoch first appeared, and the epoch
    epochs: list[tuple[int, int]] = field(default_factory=list)
    #: digest and signature of the commit that was signed here last, and the public keys of that
    _last_signed: tuple[bytes, bytes, bytes] | None = None

    @property
    def stated(self) -> tuple[int, bytes, bytes]:
        """The statement of a new commit: number and digest of a roster entry, and the member."""
        if self.membership is None:
            return 0, NO_DIGEST, NO_MEMBER
        number = self.membership.number
        digest = self.membership.roster.digest_at(number)
        assert digest is not None, "the roster only grows"
        return number, digest, self.membership.member

    def sign(self, body: CommitBody, key: SchemaKey) -> Commit:
        """The commit, authenticated under the key that it names, and signed."""
        encoded = wire.encode_commit_body(body)
        commit = Commit(encoded, key.log.compute(encoded), b"")
        if self.membership is None:
            return commit
        identity, digest = self.membership.identity, wire.commit_digest(commit)
        signature = identity.sign("commit", digest)
        self._last_signed = digest, signature, identity.keys
        return msgspec.structs.replace(commit, signature=signature)

    def check(self, commit: Commit, body: CommitBody, version: int, digest: bytes) -> None:
        """Check a commit's writer and epoch, and whether the epoch was still valid.

        Args:
            version, digest: of the log with this commit.

        Raises:
            LogBroken: its writer had no right to write here, or did not sign it; or its epoch or
                definition is not the roster's at that entry.
            Closed: ``roster_missing``; it names a roster, but the API shows none.
        """
        if self.membership is None:
            if body.roster or commit.signature:
                raise Closed(
                    "the API shows no roster of the organization, and commits name one",
                    code="roster_missing",
                    hint="the roster is hidden or lost: restore the API's newest backup",
                )
            return
        roster = self.membership.roster
        if body.roster < self.roster:
            raise LogBroken("a commit names an older roster than the commit before it")
        if roster.digest_at(body.roster) != body.roster_digest:
            raise LogBroken("a commit names a roster that is not the organization's")
        placed = roster.schema(self.schema, body.roster)
        if placed is None or not roster.may_write(body.member, self.schema, body.roster):
            raise LogBroken("a commit was signed by somebody who could not write here")
        maker = roster.member(body.member, body.roster)
        assert maker is not None, "who writes is in the roster"
        if not self._is_by(roster.keys_of(maker), commit):
            raise LogBroken("the signature of a commit is wrong")
        epoch = roster.epoch(placed.dataset, body.roster)
        if epoch is None or body.key_version != epoch.epoch:
            raise LogBroken("a commit is not of the epoch that its roster states")
        if version == 1:
            require_shown(placed.slug)  # a definition is shown with its schema's name
        if version == 1 and body.definition != placed.definition:
            raise LogBroken("the first commit contains another definition than was signed")
        self.check_end(version, digest, body.key_version)

    def forgets(self, epoch: int, number: int | None = None) -> bool:
        """Whether the key of an epoch is forgotten, at an entry of the roster or now."""
        if self.membership is None:
            return False
        roster = self.membership.roster
        placed = roster.schema(self.schema)
        return placed is not None and epoch < roster.first(placed.dataset, number)

    def _is_by(self, keys: MemberKeys, commit: Commit) -> bool:
        # A commit that was just signed here needs no verification; most commits come back like
        # this.
        signed = self._last_signed
        known = signed is not None and signed[1] == commit.signature
        if known and signed == (wire.commit_digest(commit), commit.signature, keys.raw):
            return True
        return keys.verifier.verify(commit.signature, wire.commit_message(commit))

    def check_end(self, version: int, digest: bytes, epoch: int) -> None:
        """Check a log version against the heads that epochs state.

        Raises:
            LogBroken: an epoch states another head, or the version's epoch had ended or not begun.
        """
        if self.membership is None:
            return
        for end in self.membership.roster.ends(self.schema):
            if version == end.version and digest != end.digest:
                raise LogBroken("the log is not the one that an epoch of its keys ended")
            if version <= end.version and epoch >= end.epoch:
                raise LogBroken("a commit is of an epoch that had not begun")
            if version > end.version and epoch < end.epoch:
                raise LogBroken("a commit is of an epoch that had ended")

    def add(self, body: CommitBody, version: int) -> None:
        """Record an accepted commit."""
        self.roster = body.roster
        if not self.epochs or self.epochs[-1][1] != body.key_version:
            self.epochs.append((version, body.key_version))

    def check_ends(
        self, digest_at: Callable[[int], bytes | None], head: int, number: int | None = None
    ) -> None:
        """Check the whole log against epochs that began since it was verified.

        Args:
            digest_at: the log's running digest at a version.
            head: its newest version.
            number: a roster entry that was read before the log was fetched; the log has to reach
                the heads stated by the epochs up to it.

        Raises:
            LogBroken: as :meth:`check_end`; or the log ends too early.
        """
        if self.membership is None:
            return
        if number is not None and self.ends_forgotten(number):
            raise LogBroken("the log ends under a forgotten key")
        for end in self.membership.roster.ends(self.schema):
            if end.version > head:
                if number is not None and end.number <= number:
                    raise LogBroken("the log ends earlier than an epoch of its keys states")
                continue
            digest = digest_at(end.version)
            if digest is None:
                raise LogBroken("what was verified does not show where the log stood")
            if end.version:
                self.check_end(end.version, digest, self._epoch_at(end.version))
            if end.version < head:
                # Unknown where no epoch states this version as a head; it is not used then.
                after = digest_at(end.version + 1) or NO_DIGEST
                self.check_end(end.version + 1, after, self._epoch_at(end.version + 1))

    def ends_forgotten(self, number: int) -> bool:
        """Whether the epoch of the log's newest commit was forgotten by an entry of the roster. No
        data of a forgotten epoch remains, so the log must have continued."""
        return bool(self.epochs) and self.forgets(self.epochs[-1][1], number)

    def last_before(self, epoch: int, head: int) -> int:
        """The version of the newest commit of an earlier epoch; 0 without such a commit.

        Args:
            head: the log's newest version.
        """
        first = (since for since, epoch_then in self.epochs if epoch_then >= epoch)
        return next(first, head + 1) - 1

    def _epoch_at(self, version: int) -> int:
        return next(epoch for since, epoch in reversed(self.epochs) if since <= version)


class LogOlder(LogBroken):
    """The log ends before commits that were seen, and is not known to have others instead."""

    default_hint = (
        "restore the API's newest backup; if this is the newest: ers proxy accept-rollback, or ers"
        " schema accept-log for this schema alone"
    )


@dataclass(frozen=True, slots=True)
class LogHead:
    """A log version and its running digest: a proxy remembers the head that it saw."""

    version: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Begun:
    """The digest of the checkpoint that a ledger began with, and its signer; zero bytes without a
    roster."""

    version: int
    member: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class OrderState:
    """The contents of an :class:`Order`; ``roster`` and ``epochs`` as in :class:`Signing`."""

    digests: list[bytes]
    base: int
    apart: dict[int, bytes]
    #: counter and digest of each writer's newest commit
    writers: dict[bytes, tuple[int, bytes]]
    requests: set[bytes]
    requests_since: int
    begun: Begun | None
    added_at: int
    roster: int
    epochs: list[tuple[int, int]]


#: The digest before the first commit, of a log and of a writer.
EMPTY_DIGEST = bytes(32)


@dataclass(slots=True)
class Writer:
    """The counter and the digest of a writer's newest commit."""

    counter: int = 0
    digest: bytes = EMPTY_DIGEST


@dataclass
class Order:
    """The order of a log's commits: the part of a ledger that knows the commits, but not the rows
    and segments that they add or end.

    ``membership`` says who may commit; it is None if the organization has no roster.
    """

    keys: LogKeys
    writer: bytes
    membership: LogMembership | None = None
    #: of the versions from ``_base`` on, and of some earlier versions
    _digests: list[bytes] = field(default_factory=lambda: [EMPTY_DIGEST])
    _base: int = 0
    _apart: dict[int, bytes] = field(default_factory=dict)
    _writers: dict[bytes, Writer] = field(default_factory=dict)
    #: ids of the requests that the commits stored; requests before the checkpoint are missing if
    #: they are earlier than the moment (milliseconds since 1970)
    _requests: set[bytes] = field(default_factory=set)
    requests_since: int = 0
    #: None if the log was verified from its beginning
    begun: Begun | None = None
    #: the newest version that added records
    added_at: int = 0
    _signing: Signing = field(init=False)

    def __post_init__(self) -> None:
        self._signing = Signing(self.keys.schema, self.membership)

    def order_state(self) -> OrderState:
        """A copy of the state for :meth:`resume`; later commits do not change it."""
        return OrderState(
            list(self._digests),
            self._base,
            dict(self._apart),
            {uid: (writer.counter, writer.digest) for uid, writer in self._writers.items()},
            set(self._requests),
            self.requests_since,
            self.begun,
            self.added_at,
            self._signing.roster,
            list(self._signing.epochs),
        )

    def resume(self, state: OrderState) -> None:
        """Continue from the result of :meth:`order_state`, which this object then owns."""
        self._digests, self._base, self._apart = state.digests, state.base, state.apart
        self._writers = {uid: Writer(*head) for uid, head in state.writers.items()}
        self._requests, self.requests_since = state.requests, state.requests_since
        self.begun, self.added_at = state.begun, state.added_at
        self._signing.roster, self._signing.epochs = state.roster, state.epochs

    @property
    def version(self) -> int:
        return self._base + len(self._digests) - 1

    @property
    def head(self) -> LogHead:
        return LogHead(self.version, self._digests[-1])

    def heads(self, since: int = 0) -> list[LogHead]:
        """The head of the log at each version after ``since``, as far back as heads are kept."""
        first = max(0, since, self._base - 1) + 1
        known = islice(self._digests, first - self._base, None)
        return [LogHead(at, digest) for at, digest in enumerate(known, first)]

    def digest_at(self, version: int) -> bytes | None:
        """The running digest at a version; None if the log does not reach the version, or if the
        checkpoint that this order began with does not contain the digest."""
        if self._base <= version <= self.version:
            return self._digests[version - self._base]
        return self._apart.get(version)

    def remember(self, head: LogHead) -> None:
        """Record a proven head from before the checkpoint's heads."""
        self._apart.setdefault(head.version, head.digest)

    @property
    def stated(self) -> tuple[int, bytes, bytes]:
        """The same as :attr:`Signing.stated`."""
        return self._signing.stated

    def ends_with(self, commit: Commit) -> bool:
        """Whether this commit is in the log and is its writer's newest."""
        body = wire.decode_commit_body(commit)
        return self._writers.get(body.writer, Writer()).digest == wire.commit_digest(commit)

    def has_request(self, request_id: bytes) -> bool:
        """Whether a commit in the log has stored the request with this id."""
        return request_id in self._requests

    def next_body(
        self, key: SchemaKey, definition: SchemaDefinition, *, brings: bool
    ) -> CommitBody:
        """An empty body of this writer's next commit.

        Args:
            key: authenticates it.
            brings: whether it contains the definition's text.
        """
        writer = self._writers.get(self.writer, Writer())
        roster, roster_digest, member = self._signing.stated
        return CommitBody(
            format=1,
            id=new_id(),
            schema=self.keys.schema,
            key_id=key.id,
            key_version=key.version,
            roster=roster,
            roster_digest=roster_digest,
            member=member,
            definition=definition.digest,
            definition_text=definition.canonical if brings else b"",
            writer=self.writer,
            counter=writer.counter + 1,
            previous=writer.digest,
            seen=self.version,
            seen_digest=self._digests[-1],
            groups=[],
            segments=[],
            killed=[],
            replaced=[],
            requests=[],
            exact=0,
            ended=[],
            holes=[],
        )

    def forgets(self, request_id: bytes) -> bool:
        """Whether only the whole log can show whether the request with this id was stored."""
        return request_id not in self._requests and milliseconds(request_id) < self.requests_since

    def knows(self, head: LogHead) -> bool:
        """Whether this log contains ``head``."""
        return self.digest_at(head.version) == head.digest

    def check_ends(self, number: int | None = None) -> None:
        """Check the log against epochs of the roster that began since it was verified.

        Args:
            number: as for :meth:`Signing.check_ends`.

        Raises:
            LogBroken: an epoch states another head, or the log ends before it.
        """
        self._signing.check_ends(self.digest_at, self.version, number)

    def head_before(self, epoch: int) -> LogHead:
        """The head of the log when an epoch began, according to its commits: after the last commit
        of an earlier epoch. The log was verified from its beginning.
        """
        version = self._signing.last_before(epoch, self.version)
        digest = self.digest_at(version)
        assert digest is not None, "a log that was verified from its beginning has all its digests"
        return LogHead(version, digest)

    def ends_forgotten(self, number: int) -> bool:
        """The same as :meth:`Signing.ends_forgotten`."""
        return self._signing.ends_forgotten(number)

    def check_order(self, body: CommitBody, log: Log) -> None:
        """Check that a commit follows its writer's last commit and a prefix of this log.

        Raises:
            LogBroken: it does not.
        """
        writer = self._writers.get(body.writer, Writer())
        require(commit_judging.judge_order(body, log, (writer.counter, writer.digest)))
        if self.digest_at(body.seen) != body.seen_digest:
            raise LogBroken(CommitFault.OTHER_LOG.value)
        if self._requests.intersection(body.requests):
            raise LogBroken("a commit contains a request that is already stored")
        if any(map(self.forgets, body.requests)):
            raise LogBroken("a commit contains a request that may already be stored")


def require(reason: CommitFault | None) -> None:
    """
    Raises:
        LogBroken: the reason why a commit may not follow.
    """
    if reason is not None:
        raise LogBroken(reason.value)
