"""Make a checkpoint of a verified log, and begin a ledger with a checkpoint.

With a checkpoint, a new reader verifies only the log after it (docs/SPEC.md, section 7.9). It is
only as trustworthy as its signer: the reader checks the signer's current rights, and a reader that
has verified the whole log compares the checkpoint with it.

Equal ledgers give equal bytes, so that two ledgers can be compared. This module validates a
received state, so that the caller can safely continue from it; only the log proves whether the
state is true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta
from pyroaring import BitMap

from encrypted_records.crypto.keys import LogKeys
from encrypted_records.errors import CheckpointBroken, KeyMissing, LogBroken, Malformed
from encrypted_records.index.log.history import Past, Resealed
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.ledger_state import Deaths, LedgerState, RestoredState, bitmap_of
from encrypted_records.index.log.order import NO_MEMBER, Begun, LogHead, LogMembership, OrderState
from encrypted_records.index.log.snapshot import Laid
from encrypted_records.index.ordinals import ordinals
from encrypted_records.model import records, wire
from encrypted_records.model.ciphertext_lengths import LeastClass, is_class
from encrypted_records.model.definition_changes import DefinitionHistory
from encrypted_records.model.definition_parser import parse_canonical
from encrypted_records.model.ids import milliseconds
from encrypted_records.model.roster import NO_DIGEST

#: Time in which a request may be repeated, plus a day, in milliseconds.
REPEATED_MS = 2 * 86_400_000


def make(ledger: Ledger, state: LedgerState, requests_since: int) -> wire.Checkpoint:
    """Make a signed checkpoint of a ledger that was verified from its beginning.

    Args:
        state: the ledger's state, copied earlier because the ledger may continue meanwhile.
        requests_since: in milliseconds since 1970; earlier requests are left out.

    Raises:
        Closed: the newest key is missing.
    """
    assert ledger.begun is None and state.order.begun is None, "who signs it has verified the log"
    key, by = ledger.keys.newest, ledger.membership
    roster, roster_digest, member = ledger.stated
    version = state.snapshot.version
    encoded = wire.encode_checkpoint_body(
        wire.CheckpointBody(
            format=1,
            schema=ledger.keys.schema,
            key_id=key.id,
            key_version=key.version,
            roster=roster,
            roster_digest=roster_digest,
            member=member,
            version=version,
            digest=state.order.digests[-1],
            state=encode(
                state,
                requests_since=requests_since,
                ends=_ends(state, ledger.keys.schema, by, roster),
            ),
        )
    )
    made = wire.Checkpoint(encoded, key.checkpoint.compute(encoded), b"")
    if by is None:
        return made
    signature = by.identity.sign("checkpoint", wire.checkpoint_digest(made))
    return wire.Checkpoint(made.body, made.mac, signature)


def take(
    checkpoint: wire.Checkpoint,
    keys: LogKeys,
    writer: bytes,
    membership: LogMembership | None,
    now: int,
) -> Ledger:
    """The ledger with the state that a checkpoint claims for the log.

    Args:
        now: in milliseconds since 1970.
        writer: the writer of the ledger.
        membership: the membership by the roster, read to its head; None without a roster.

    Raises:
        CheckpointBroken: the checkpoint is not of this schema, not under the newest keys, or not by
            a current writer; or it was altered, names too few requests, or has a state that no log
            can have.
        Closed: the newest key is missing, or a key with which the log began.
    """
    body = _checked(checkpoint, keys, membership)
    begun = Begun(body.version, body.member, wire.checkpoint_digest(checkpoint))
    kept = decode(body.state, body.version, body.digest, begun)
    if kept.order.requests_since > now - REPEATED_MS:
        raise CheckpointBroken("a checkpoint does not name the requests that may be repeated")
    if kept.order.roster > body.roster:
        raise CheckpointBroken("a checkpoint is of a newer log than the roster that it names")
    try:
        return Ledger.restore(keys, writer, kept, membership)
    except (LogBroken, KeyMissing) as error:
        raise CheckpointBroken(f"a checkpoint cannot be taken: {error.message}") from None


def read(checkpoint: wire.Checkpoint) -> wire.CheckpointBody:
    """Decode a checkpoint without comparing it with a log.

    Raises:
        CheckpointBroken: the checkpoint has a format that this version does not know.
    """
    try:
        return wire.decode_checkpoint_body(checkpoint)
    except Malformed as error:
        raise CheckpointBroken(error.message) from None


def _checked(
    checkpoint: wire.Checkpoint, keys: LogKeys, membership: LogMembership | None
) -> wire.CheckpointBody:
    body, key = read(checkpoint), keys.newest
    if body.schema != keys.schema:
        raise CheckpointBroken("a checkpoint is of another schema")
    if (body.key_version, body.key_id) != (key.version, key.id):
        raise CheckpointBroken("a checkpoint is not of the newest keys")
    if not key.checkpoint.verify(checkpoint.mac, checkpoint.body):
        raise CheckpointBroken("a checkpoint is not authentic")
    if membership is None:
        named = (body.roster, body.roster_digest, body.member, checkpoint.signature)
        if named != (0, NO_DIGEST, NO_MEMBER, b""):
            raise CheckpointBroken("a checkpoint is signed, but the organization has no roster")
        return body
    roster = membership.roster
    if roster.digest_at(body.roster) != body.roster_digest:
        raise CheckpointBroken("a checkpoint names a roster that is not the organization's")
    signer = roster.member(body.member)
    if signer is None or not roster.may_write(body.member, keys.schema):
        raise CheckpointBroken("a checkpoint was signed by somebody who cannot write here")
    signed = wire.checkpoint_message(checkpoint)
    if not roster.keys_of(signer).verifier.verify(checkpoint.signature, signed):
        raise CheckpointBroken("the signature of a checkpoint is wrong")
    return body


def prove_passage(ledger: Ledger, seen: LogHead, between: Sequence[records.LogEntry]) -> None:
    """Hash the commits between a remembered head and the checkpoint that a ledger begins with, to
    prove that the head leads to the checkpoint.

    Args:
        between: all of these commits, in log order.

    Raises:
        CheckpointBroken: the commits do not connect them.
    """
    digest = seen.digest
    for version, entry in enumerate(between, seen.version + 1):
        digest = wire.next_log_digest(digest, entry.commit)
        if entry.version != version or ledger.digest_at(version) not in (None, digest):
            raise CheckpointBroken("a checkpoint is not of the log that was seen")
    if LogHead(seen.version + len(between), digest) != ledger.head:
        raise CheckpointBroken("a checkpoint is not of the log that was seen")
    ledger.remember(seen)


def after(ledger: Ledger, deltas: Sequence[records.ManifestDelta]) -> list[records.ManifestDelta]:
    """The part of the log after a ledger's version, with the data that accompanied it."""
    return [
        records.ManifestDelta(
            delta.schema,
            max(delta.version, ledger.version),
            delta.key_id,
            delta.definition,
            [entry for entry in delta.entries if entry.version > ledger.version],
            delta.headers,
        )
        for delta in deltas
    ]


def require_equal(claimed: Ledger, verified: LedgerState) -> None:
    """Compare a ledger that began with a checkpoint with a ledger at the same version that was
    verified from its beginning.

    Raises:
        CheckpointBroken: they differ, and the signer of the checkpoint has lied.
    """
    assert claimed.begun is not None and verified.order.begun is None
    since = claimed.requests_since
    encoded, known = (
        encode(state, requests_since=since, ends={}) for state in (claimed.state(), verified)
    )
    if claimed.version != verified.snapshot.version or encoded != known:
        raise CheckpointBroken(
            f"the checkpoint at version {claimed.begun.version} does not match the log"
        )


def _ends(
    state: LedgerState, schema: bytes, membership: LogMembership | None, number: int
) -> dict[int, bytes]:
    """Log digests at the versions that the roster, up to an entry, states as heads of the log."""
    if membership is None:
        return {}
    digests = state.order.digests
    ends = (end for end in membership.roster.ends(schema) if end.number <= number)
    return {end.version: digests[end.version] for end in ends if end.version < len(digests)}


UID, COUNTER, DIGEST = 16, 8, 32
_U32 = np.dtype(">u4")

Key = tuple[records.KeyVersion, records.KeyId]


class _State(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    digests: bytes
    ends: list[tuple[records.U63, records.Digest]]
    first: Key
    present: Key
    since: records.U63
    epochs: Annotated[list[tuple[records.U63, records.KeyVersion]], Meta(min_length=1)]
    definitions: Annotated[list[bytes], Meta(min_length=1)]
    usable: list[records.Digest]
    defined_at: records.U63
    resealed: tuple[records.U63, records.U63, list[Key]]
    named: records.U63
    writers: bytes
    requests_since: records.U63
    requests: bytes
    added_at: records.U63
    shapes: list[tuple[list[records.U32], list[LeastClass], records.Digest]]
    groups: tuple[bytes, bytes, bytes, bytes, bytes]
    segments: list[records.Segment]
    dead: list[records.KilledRows]
    deaths: list[tuple[records.Uid, list[tuple[records.U63, records.U32]]]]
    stored: list[tuple[records.U63, records.U63]]
    last: records.U63
    laid: list[tuple[records.Uid, list[tuple[records.Uid, records.U32]]]]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_State)


def encode(state: LedgerState, *, requests_since: int, ends: Mapping[int, bytes]) -> bytes:
    """The bytes of a ledger's state.

    Args:
        requests_since: earlier requests are left out; in milliseconds since 1970.
        ends: log digests at earlier versions that the roster states as heads of the log.
    """
    order, snapshot, history = state.order, state.snapshot, state.history
    assert state.first is not None and state.present is not None and history is not None
    groups = snapshot.in_order[: len(snapshot.groups)]
    shapes: dict[tuple[tuple[int, ...], tuple[LeastClass, ...], bytes], int] = {}
    numbers = [
        shapes.setdefault(
            (tuple(group.fields), tuple(group.classes), group.definition), len(shapes)
        )
        for group in groups
    ]
    dead = [group for group in groups if group.uid in snapshot.dead]
    oldest = max(0, snapshot.version - records.MAX_BEHIND)
    requests = (request for request in order.requests if milliseconds(request) >= requests_since)
    return _encoder.encode(
        _State(
            digests=b"".join(order.digests[oldest - order.base :]),
            ends=sorted(ends.items()),
            first=state.first,
            present=state.present,
            since=state.since,
            epochs=order.epochs,
            definitions=[definition.canonical for definition in history.every.values()],
            usable=sorted(history.usable),
            defined_at=state.defined_at,
            resealed=(
                state.resealed.version,
                state.resealed.moment,
                list(state.resealed.former),
            ),
            named=order.roster,
            writers=b"".join(
                uid + counter.to_bytes(COUNTER, "big") + digest
                for uid, (counter, digest) in sorted(order.writers.items())
            ),
            requests_since=requests_since,
            requests=b"".join(sorted(requests)),
            added_at=order.added_at,
            shapes=[(list(fields), list(classes), named) for fields, classes, named in shapes],
            groups=(
                b"".join([group.uid for group in groups]),
                _numbers([group.key_version for group in groups]),
                _numbers([group.count for group in groups]),
                _numbers(numbers),
                b"".join([group.rows for group in groups]),
            ),
            segments=list(snapshot.segments),
            dead=[records.KilledRows(group.uid, _runs(snapshot.dead[group.uid])) for group in dead],
            deaths=[(group.uid, list(snapshot.deaths.get(group.uid, ()))) for group in dead],
            stored=sorted(state.past.stored.items()),
            last=state.past.last,
            laid=sorted((uid, list(of_segment)) for uid, of_segment in snapshot.laid.items()),
        )
    )


def decode(data: bytes, version: int, digest: bytes, begun: Begun) -> RestoredState:
    """Undo :func:`encode`.

    Args:
        version, digest: of the log, as the checkpoint says.
        begun: the checkpoint.

    Raises:
        CheckpointBroken: these bytes are not a state that a log can have at this version.
    """
    try:
        state = _decoder.decode(data)
        groups = list(_groups(state))
        history = _history(state)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, Malformed):
        raise CheckpointBroken("a checkpoint is not of the form that this version knows") from None
    digests = _cut(state.digests, DIGEST)
    oldest = max(0, version - records.MAX_BEHIND)
    if len(digests) != version - oldest + 1 or digests[-1] != digest:
        raise CheckpointBroken("a checkpoint does not say how its log came to be")
    begins, epochs = zip(*state.epochs, strict=True)
    stands = (state.since, state.present[0]) == state.epochs[-1]
    if begins[0] != 1 or not stands or not _ascending(begins) or not _ascending(epochs):
        raise CheckpointBroken("a checkpoint does not say under which keys its log was made")
    by_uid = {group.uid: group for group in groups}
    dead = {rows.group: bitmap_of(rows) for rows in _in_place(state.dead, by_uid)}
    deaths: dict[bytes, Deaths] = {uid: tuple(dead_at) for uid, dead_at in state.deaths if dead_at}
    if len(by_uid) != len(groups) or len(dead) != len(state.dead) or not deaths.keys() <= set(dead):
        raise CheckpointBroken("a checkpoint names a group twice, or one that it does not have")
    laid = dict(state.laid)
    if len(laid) != len(state.laid) or not laid.keys() <= {
        segment.uid for segment in state.segments
    }:
        raise CheckpointBroken("a checkpoint says twice, or of no segment, which groups it has")
    _check_segments(state.segments, by_uid, dead, history, laid)
    return RestoredState(
        first=state.first,
        present=state.present,
        since=state.since,
        history=history,
        order=OrderState(
            digests=digests,
            base=oldest,
            apart={at: end for at, end in state.ends if at < oldest},
            writers=_writers(state.writers),
            requests=set(_cut(state.requests, UID)),
            requests_since=state.requests_since,
            begun=begun,
            added_at=state.added_at,
            roster=state.named,
            epochs=state.epochs,
        ),
        groups=groups,
        segments=state.segments,
        dead=dead,
        deaths=deaths,
        past=Past(dict(state.stored), state.last),
        headers=[],
        resealed=Resealed(state.resealed[0], state.resealed[1], tuple(state.resealed[2])),
        defined_at=state.defined_at,
        laid=laid,
    )


def _groups(state: _State) -> Iterator[records.Group]:
    uids, rows = _cut(state.groups[0], UID), _cut(state.groups[4], DIGEST)
    key_versions, counts, shapes = (
        np.frombuffer(group, _U32).tolist() for group in state.groups[1:4]
    )
    for uid, key_version, count, shape, digest in zip(
        uids, key_versions, counts, shapes, rows, strict=True
    ):
        if (
            shape >= len(state.shapes)
            or not 1 <= count <= records.MAX_GROUP_RECORDS
            or not key_version
        ):
            raise ValueError
        fields, classes, definition = state.shapes[shape]
        yield records.Group(uid, key_version, count, fields, classes, definition, digest)


def _history(state: _State) -> DefinitionHistory:
    definitions = {
        definition.digest: definition for definition in map(parse_canonical, state.definitions)
    }
    present = list(definitions.values())[-1]
    history = DefinitionHistory(present, definitions, frozenset(state.usable))
    if not history.is_comparable or present.digest not in history.usable:
        raise ValueError
    if len(definitions) != len(state.definitions) or not definitions.keys() >= history.usable:
        raise ValueError
    for fields, classes, named in state.shapes:
        if (
            named not in definitions
            or fields != definitions[named].ids
            or len(fields) != len(classes)
        ):
            raise CheckpointBroken("a checkpoint has a group of other fields than its definition")
        if not all(map(is_class, classes)):
            raise CheckpointBroken("a checkpoint states a class that no field has")
    return history


def _writers(joined: bytes) -> dict[bytes, tuple[int, bytes]]:
    entries = _cut(joined, UID + COUNTER + DIGEST)
    return {
        writer[:UID]: (int.from_bytes(writer[UID:-DIGEST], "big"), writer[-DIGEST:])
        for writer in entries
    }


def _in_place(
    killed: Sequence[records.KilledRows], groups: Mapping[bytes, records.Group]
) -> Iterator[records.KilledRows]:
    for rows in killed:
        group = groups.get(rows.group)
        if group is None or not rows.in_order or rows.end > group.count:
            raise CheckpointBroken("a checkpoint names dead rows that do not exist")
        yield rows


def _check_segments(
    segments: Sequence[records.Segment],
    groups: Mapping[bytes, records.Group],
    dead: Mapping[bytes, BitMap],
    history: DefinitionHistory,
    laid: Mapping[bytes, Laid],
) -> None:
    """Check that each group is in one segment and that counts add up; queries rely on both."""
    uids = {segment.uid for segment in segments}
    covered = [uid for segment in segments for uid, _ in laid.get(segment.uid, segment.groups)]
    if len(uids) != len(segments) or len(covered) != len(groups) or set(covered) != groups.keys():
        raise CheckpointBroken("the segments of a checkpoint do not cover its groups")
    for segment in segments:
        base = gone = 0
        for uid, stated in laid.get(segment.uid, segment.groups):
            if stated != base:
                raise CheckpointBroken("a segment's groups do not follow one another")
            base += groups[uid].count
            gone += len(dead.get(uid, ()))
        if segment.count + segment.purged != base or segment.purged > gone:
            raise CheckpointBroken("a segment's counts do not add up")
        if segment.definition not in history.every:
            raise CheckpointBroken("a segment is of a definition that a checkpoint does not have")


def _ascending(numbers: Sequence[int]) -> bool:
    return all(number < after for number, after in pairwise(numbers))


def _runs(rows: BitMap) -> list[tuple[int, int]]:
    """The numbers as ascending (first, count) runs of maximum length."""
    numbers = ordinals(rows).astype(np.int64)
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    firsts = numbers[np.concatenate(([0], cuts))]
    counts = np.diff(np.concatenate(([0], cuts, [len(numbers)])))
    return list(zip(firsts.tolist(), counts.tolist(), strict=True))


def _numbers(values: Sequence[int]) -> bytes:
    return np.array(values, _U32).tobytes()


def _cut(joined: bytes, size: int) -> list[bytes]:
    """
    Raises:
        CheckpointBroken: bytes are left over.
    """
    if len(joined) % size:
        raise CheckpointBroken("a checkpoint is cut short")
    return [joined[at : at + size] for at in range(0, len(joined), size)]
