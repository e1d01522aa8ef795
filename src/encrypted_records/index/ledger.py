"""The commit log, verified: what a schema's data is at each version (docs/SPEC.md, section 7).

The state is never taken from the API's word. It is what the log's commits, each authenticated
under K_log, add up to; a commit that does not fit the state before it is a broken log. Commits
name the log they had seen by its running digest, so that dropping, reordering or replacing any
earlier commit breaks every later one that knew of it.

A keyring may be rotated while a log goes on: each commit names the key that authenticates it, and
the version of that key never falls along the log (section 7.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyroaring import BitMap

from encrypted_records.crypto.keys import SchemaKey, SchemaKeys
from encrypted_records.errors import ErsError, LogBroken
from encrypted_records.index.view import GroupState, View
from encrypted_records.model import ids, wire
from encrypted_records.model.ids import new_id
from encrypted_records.model.records import (
    Commit,
    CommitBody,
    CommitUpload,
    Group,
    LogEntry,
    ManifestDelta,
    Page,
    RowBatch,
    RowRef,
    Segment,
)

EMPTY_DIGEST = bytes(32)


@dataclass(frozen=True, slots=True)
class Head:
    """A version of the log and its running digest: what a proxy remembers of what it saw."""

    version: int
    digest: bytes


@dataclass(slots=True)
class _Writer:
    counter: int = 0
    digest: bytes = EMPTY_DIGEST


@dataclass
class Ledger:
    """The log of one schema as far as it has been verified.

    ``writer`` is this process's own 16-byte writer id: a fresh one per process, so that what an
    earlier process sent in its last moments can never collide with a counter used here.
    """

    keys: SchemaKeys
    writer: bytes
    #: keys of the first and of the newest commit, and the log version at which the latter came in
    _first: SchemaKey | None = None
    _present: SchemaKey | None = None
    _since: int = 0
    _digests: list[bytes] = field(default_factory=lambda: [EMPTY_DIGEST])
    _writers: dict[bytes, _Writer] = field(default_factory=dict)
    _groups: dict[bytes, GroupState] = field(default_factory=dict)
    _segments: dict[bytes, Segment] = field(default_factory=dict)
    _dead: dict[bytes, BitMap] = field(default_factory=dict)
    _deaths: dict[bytes, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    #: uids of every segment there ever was; a replaced one must not come back
    _indexed: set[bytes] = field(default_factory=set)
    _commits: set[bytes] = field(default_factory=set)
    #: of the version that it was last asked for at
    _view: View | None = None

    @property
    def key(self) -> SchemaKey:
        """Seals and authenticates what is new."""
        return self.keys.newest

    @property
    def tails(self) -> SchemaKey:
        """The key whose tails are in the index keys of long strings, in segments of any version.

        It is that of the first commit: were it to change, equal strings of segments that are
        merged or asked together would have different index keys.
        """
        return self._first or self.key

    @property
    def version(self) -> int:
        return len(self._digests) - 1

    @property
    def head(self) -> Head:
        return Head(self.version, self._digests[-1])

    def has(self, commit_id: bytes) -> bool:
        """Whether a commit of this id is in the log."""
        return commit_id in self._commits

    def view(self) -> View:
        if self._view is None or self._view.version != self.version:
            self._view = View(
                self.version,
                tuple(self._segments.values()),
                dict(self._groups),
                dict(self._dead),
                dict(self._deaths),
            )
        return self._view

    def knows(self, head: Head) -> bool:
        """Whether this log contains what ``head`` names."""
        return head.version <= self.version and self._digests[head.version] == head.digest

    def extend(self, delta: ManifestDelta) -> None:
        """Take in the log after :attr:`version`.

        Raises:
            LogBroken: the delta has gaps, commits that are not authentic, or such that cannot
                follow. The ledger then stands where the last good commit left it.
            KeyMissing: a commit is under a key that the keyring lacks. As above.
        """
        if delta.schema != self.keys.schema:
            raise LogBroken("the log is of another schema")
        for entry in delta.entries:
            self._apply(entry)
        if self.version != delta.version:
            raise LogBroken("the log does not reach the version it claims")

    def _apply(self, entry: LogEntry) -> None:
        if entry.version != self.version + 1:
            raise LogBroken("the log has a gap")
        commit = entry.commit
        try:
            body = wire.decode_commit_body(commit)
        except ErsError:
            raise LogBroken("a commit in the log is of an unknown format") from None
        if body.schema != self.keys.schema:
            raise LogBroken("a commit in the log is of another schema")
        # Read before it is authenticated, since it says under which key that is.
        key = self.keys.named(body.key_version, body.key_id)
        if not key.log.verify(commit.mac, commit.body):
            raise LogBroken("a commit in the log is not authentic")
        self._check_place(body)
        self._check_key(body)
        groups = self._check_added(body)
        self._check_killed(body)
        self._check_segments(body, groups)

        if self._present is None or key.version > self._present.version:
            self._present, self._since = key, entry.version
            self._first = self._first or key
        self._commits.add(body.id)
        self._writers[body.writer] = _Writer(body.counter, wire.commit_digest(commit))
        for group in body.groups:
            self._groups[group.uid] = GroupState(group, len(self._groups))
        killed: dict[bytes, list[int]] = {}
        for ref in body.killed:
            killed.setdefault(ref.group, []).append(ref.ordinal)
        for uid, ordinals in killed.items():
            # A view may hold the old set, so it is replaced and never changed.
            self._dead[uid] = self._dead.get(uid, BitMap()) | BitMap(ordinals)
            death = (ids.milliseconds(body.id), len(ordinals))
            self._deaths[uid] = (*self._deaths.get(uid, ()), death)
        for uid in body.replaced:
            del self._segments[uid]
        for segment in body.segments:
            self._segments[segment.uid] = segment
            self._indexed.add(segment.uid)
        self._digests.append(wire.next_log_digest(self._digests[-1], commit))

    def _check_place(self, body: CommitBody) -> None:
        if body.id in self._commits:
            raise LogBroken("a commit stands in the log twice")
        writer = self._writers.get(body.writer, _Writer())
        if body.counter != writer.counter + 1 or body.previous != writer.digest:
            raise LogBroken("a writer's commit is missing from the log or out of order")
        if body.seen > self.version or self._digests[body.seen] != body.seen_digest:
            raise LogBroken("a commit had seen a log other than this one")

    def _check_key(self, body: CommitBody) -> None:
        """Hold the commit's key version against the log before it (docs/SPEC.md, section 7.5)."""
        if not body.of_one_key:
            raise LogBroken("a commit adds a group or segment of another key version")
        if self._present is None or self._first is None:
            return
        if body.key_version < self._present.version:
            raise LogBroken("a commit goes back to an older key version")
        if body.key_version > self._present.version and body.seen < self._since:
            raise LogBroken("a commit brings a new key without having seen the one before")
        if body.key_version > self._first.version and body.seen < 1:
            raise LogBroken("a commit was made without having seen how the log begins")

    def _check_added(self, body: CommitBody) -> dict[bytes, Group]:
        groups = {group.uid: group for group in body.groups}
        if len(groups) != len(body.groups) or any(uid in self._groups for uid in groups):
            raise LogBroken("a commit adds a group that exists")
        return groups

    def _check_killed(self, body: CommitBody) -> None:
        named: set[tuple[bytes, int]] = set()
        for ref in body.killed:
            state = self._groups.get(ref.group)
            if state is None or ref.ordinal >= state.group.count:
                raise LogBroken("a commit removes a row that does not exist")
            if ref.ordinal in self._dead.get(ref.group, ()) or (ref.group, ref.ordinal) in named:
                raise LogBroken("a commit removes a row that is dead")
            named.add((ref.group, ref.ordinal))

    def _check_segments(self, body: CommitBody, added: Mapping[bytes, Group]) -> None:
        """Each group belongs to exactly one live segment, before and after; counts add up."""
        uids = [segment.uid for segment in body.segments]
        if len(set(uids)) != len(uids) or any(uid in self._indexed for uid in uids):
            raise LogBroken("a commit adds a segment that exists")
        freed: list[bytes] = []
        for uid in body.replaced:
            if uid not in self._segments or body.replaced.count(uid) > 1:
                raise LogBroken("a commit replaces a segment that is not live")
            freed += [group for group, _ in self._segments[uid].groups]
        covered = [group for segment in body.segments for group, _ in segment.groups]
        if sorted(covered) != sorted([*freed, *added]):
            raise LogBroken("a commit's segments do not cover exactly its groups")
        for segment in body.segments:
            base = dead = 0
            for uid, stated in segment.groups:
                group = added.get(uid) or self._groups[uid].group
                if stated != base:
                    raise LogBroken("a segment's groups do not follow one another")
                base += group.count
                dead += len(self._dead.get(uid, ()))
            if segment.count + segment.purged != base or segment.purged > dead:
                raise LogBroken("a segment's counts do not add up")

    def draft(
        self,
        definition: bytes,
        *,
        groups: Sequence[Group] = (),
        segments: Sequence[Segment] = (),
        killed: Sequence[RowRef] = (),
        replaced: Sequence[bytes] = (),
        rows: Sequence[RowBatch] = (),
        pages: Sequence[Page] = (),
        staged: Sequence[bytes] = (),
        commit_id: bytes | None = None,
    ) -> CommitUpload:
        """The next commit of this writer, authenticated; the ledger itself does not change.

        Until the outcome is known, no other commit may be drafted: it would carry the same
        counter, and the API takes only one of the two.

        Args:
            definition: digest of the definition under which the rows were sealed.
            staged: digests of the parts that were stored ahead, where rows and pages were.
            commit_id: by which the commit is known again; a fresh one where None.
        """
        writer = self._writers.get(self.writer, _Writer())
        body = wire.encode_commit_body(
            CommitBody(
                format=1,
                id=commit_id or new_id(),
                schema=self.keys.schema,
                key_id=self.key.id,
                key_version=self.key.version,
                definition=definition,
                writer=self.writer,
                counter=writer.counter + 1,
                previous=writer.digest,
                seen=self.version,
                seen_digest=self._digests[-1],
                groups=list(groups),
                segments=list(segments),
                killed=list(killed),
                replaced=list(replaced),
                content=wire.content_digest(staged or [wire.part_digest(rows, pages)]),
            )
        )
        commit = Commit(body=body, mac=self.key.log.compute(body))
        return CommitUpload(commit, tuple(rows), tuple(pages))
