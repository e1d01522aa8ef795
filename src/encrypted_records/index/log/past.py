"""The history of a schema from its verified log: when rows were stored, and the minimum size of the
stored data. Pure.

A commit has an identifier that was made when it was drafted, by the clock of the proxy that drafted
it, and that is authenticated with it. The API cannot influence these times.

Commits that replace all ciphertexts of earlier commits (docs/SPEC.md, sections 7.5, 7.7).

Tails of index keys, and the ids of requests that may be retried, are derived from one key of a log.
A commit that ends all groups may change it to the key of its own version.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from encrypted_records.crypto.keys import LogKeys, SchemaKey
from encrypted_records.errors import KeyMissing
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model.ciphertext_lengths import BESIDE_CLASS
from encrypted_records.model.ids import ID_BYTES, milliseconds
from encrypted_records.model.records import PAGE_BYTES, CommitBody
from encrypted_records.rules.commit_judging import KeyName

#: Days that are told, and that are kept: a clock may have been wrong.
DAYS = 30
_KEPT_DAYS = 400
_DAY = 86_400_000


@dataclass(slots=True)
class Past:
    """``stored`` has the rows that were stored by day since 1970, in UTC; a changed record is one.
    ``last`` is when rows were stored or ended last, in milliseconds since 1970; 0 before that."""

    stored: dict[int, int] = field(default_factory=dict)
    last: int = 0

    def add(self, body: CommitBody) -> None:
        """A commit was taken in. Groups that stand for others store nothing new."""
        if body.ended or not (body.groups or body.killed):
            return
        moment = milliseconds(body.id)
        self.last = max(self.last, moment)
        rows = sum(group.count for group in body.groups)
        if rows:
            day = moment // _DAY
            self.stored[day] = self.stored.get(day, 0) + rows
            if len(self.stored) > _KEPT_DAYS:
                del self.stored[min(self.stored)]

    def days(self, now: int) -> list[int]:
        """Rows stored on each of the last days, that of ``now`` (in milliseconds) last."""
        today = now // _DAY
        return [self.stored.get(day, 0) for day in range(today - DAYS + 1, today + 1)]


def least_bytes(snapshot: Snapshot) -> int:
    """The minimum size of the stored data in bytes: each value at its minimum length, and the index
    if its pages have a fixed length.
    """
    groups: Sequence[int] = [
        state.group.count
        * (ID_BYTES + sum(BESIDE_CLASS + class_.length for class_ in state.group.classes))
        for state in snapshot.groups.values()
    ]
    paged = (PAGE_BYTES * segment.pages for segment in snapshot.segments if segment.form == "paged")
    return sum(groups) + sum(paged)


@dataclass(frozen=True, slots=True)
class Resealed:
    """The newest time that everything was sealed again.

    Attributes:
        version: of the log; 0 if it never was.
        moment: when the key of tails and requests last became another, in milliseconds since 1970;
            0 if it never did.
        former: those that it was before, as (version, id), the oldest first.
    """

    version: int = 0
    moment: int = 0
    former: tuple[KeyName, ...] = ()

    def then(self, body: CommitBody, version: int, before: KeyName | None) -> Resealed:
        """The state after a commit that became ``version``; ``before`` names the previous key."""
        if before is None or before == (body.key_version, body.key_id):
            return Resealed(version, self.moment, self.former)
        return Resealed(version, milliseconds(body.id), (*self.former, before))

    def held(self, keys: LogKeys) -> list[SchemaKey]:
        """The former keys that are here, the newest first."""
        held: list[SchemaKey] = []
        for version, key_id in reversed(self.former):
            with suppress(KeyMissing):
                held.append(keys.find(version, key_id))
        return held


def seals_everything_again(body: CommitBody, live: Collection[bytes]) -> bool:
    """Whether a commit ends all groups that live, and none can have come in between.

    Args:
        live: the groups before it, by uid.
    """
    return bool(body.ended and body.exact) and set(body.ended) == set(live)
