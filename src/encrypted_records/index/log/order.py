"""The order of a log: how far it goes, who has added to it, and what may come next.

How far each writer of a log has come.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

from encrypted_records.crypto.keys import LogKeys, SchemaKey
from encrypted_records.errors import LogBroken
from encrypted_records.index.log.signing import LogMembership, Signing
from encrypted_records.model import wire
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.ids import milliseconds, new_id
from encrypted_records.model.records import Commit, CommitBody
from encrypted_records.rules import commit_judging
from encrypted_records.rules.commit_judging import CommitFault, Log


class LogOlder(LogBroken):
    """The log ends before commits that were seen, and has no others in their place, as far as
    known."""


@dataclass(frozen=True, slots=True)
class LogHead:
    """A version of the log and its running digest: what a proxy remembers of what it saw."""

    version: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Begun:
    """The checkpoint that a ledger was begun with, by its digest, and on whose word; zero bytes
    where there is no roster."""

    version: int
    member: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class OrderState:
    """The contents of an :class:`Order`; ``roster`` and ``epochs`` are as of :class:`Signing`."""

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


#: Stands before the first commit, of a log and of a writer.
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
    #: of the versions from ``_base`` on, and of some before it
    _digests: list[bytes] = field(default_factory=lambda: [EMPTY_DIGEST])
    _base: int = 0
    _apart: dict[int, bytes] = field(default_factory=dict)
    _writers: dict[bytes, Writer] = field(default_factory=dict)
    #: ids of the requests that the commits stored; of earlier ones than the moment (milliseconds
    #: since 1970), those are not here that came before the checkpoint
    _requests: set[bytes] = field(default_factory=set)
    requests_since: int = 0
    #: None where the log was verified from its beginning
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
        """Go on from what :meth:`order_state` gave, which belongs to this from then on."""
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
        """The running digest at a version; None where the log does not reach it, or where this was
        begun with a checkpoint that does not say."""
        if self._base <= version <= self.version:
            return self._digests[version - self._base]
        return self._apart.get(version)

    def remember(self, head: LogHead) -> None:
        """Know a version again that lies before what the checkpoint says, and was proven."""
        self._apart.setdefault(head.version, head.digest)

    @property
    def stated(self) -> tuple[int, bytes, bytes]:
        """The same as :attr:`Signing.stated`."""
        return self._signing.stated

    def ends_with(self, commit: Commit) -> bool:
        """Whether the log has no later commit of this one's writer, and has this one."""
        body = wire.decode_commit_body(commit)
        return self._writers.get(body.writer, Writer()).digest == wire.commit_digest(commit)

    def has_request(self, request_id: bytes) -> bool:
        """Whether a commit in the log has stored the request of this id."""
        return request_id in self._requests

    def next_body(
        self, key: SchemaKey, definition: SchemaDefinition, *, brings: bool
    ) -> CommitBody:
        """The body of this writer's next commit, which does nothing so far.

        Args:
            key: authenticates it.
            brings: whether it brings the definition's text.
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
        """Whether only the whole log shows whether it has stored the request of this id."""
        return request_id not in self._requests and milliseconds(request_id) < self.requests_since

    def knows(self, head: LogHead) -> bool:
        """Whether this log contains what ``head`` names."""
        return self.digest_at(head.version) == head.digest

    def check_ends(self, number: int | None = None) -> None:
        """Check the log against epochs of the roster that began since it was verified.

        Args:
            number: as for :meth:`Signing.check_ends`.

        Raises:
            LogBroken: the log stood elsewhere when they began, or ends before it.
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
        """Check that a commit follows its writer's last one, and a beginning of this log.

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
        LogBroken: there is a reason why a commit may not follow.
    """
    if reason is not None:
        raise LogBroken(reason.value)
