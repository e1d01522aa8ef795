"""Check a mirror without a key and without an API: every object against the signed log.

This proves that a mirror is consistent. Its holder could have founded an organization of the same
id; only an anchor proves that it is the right organization: earlier observations of a proxy, or the
words of its roster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from encrypted_records.errors import Closed, Refused, Unsupported
from encrypted_records.index.log.order import Order
from encrypted_records.index.roster import belief
from encrypted_records.index.roster.roster import Roster
from encrypted_records.mirror.copy import (
    MirrorCopy,
    altered,
    index_ids,
    read_page_digests,
    read_pages,
    read_rows,
    read_runs,
)
from encrypted_records.mirror.layout import SchemaObjects, Store, read_head, require_complete
from encrypted_records.model import ids
from encrypted_records.model.records import Group, Segment


class SeenBefore(Protocol):
    """The rosters and logs that a proxy has seen before."""

    def has_seen_roster(self, organization: bytes, roster: Roster | None) -> bool:
        """Whether it has seen a roster of this organization.

        Raises:
            Closed: it has, and this roster is neither the same nor an earlier state of it.
        """

    def has_seen_log(self, schema: bytes, log: Order) -> bool:
        """Whether it has seen a log of this schema; raises as :meth:`has_seen_roster`."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """The roster of an organization, by the words of its newest entry and the digest of its first.

    Attributes:
        is_known: whether a proxy has seen it before.
    """

    organization: str
    number: int
    words: str
    founding: str
    is_known: bool


@dataclass(slots=True)
class MirrorProof:
    """The counts of objects that were read, and the flaws; each flaw names its schema and object.

    Attributes:
        unsigned: schemas with commits whose organization has no roster, so that the commits are
            unsigned.
    """

    schemas: int = 0
    commits: int = 0
    rows: int = 0
    pages: int = 0
    flaws: list[str] = field(default_factory=list)
    anchors: list[Anchor] = field(default_factory=list)
    unsigned: list[str] = field(default_factory=list)


class MirrorVerifier:
    """
    Args:
        tell: called with each flaw as it is found.
        memory: the rosters and logs seen before, for comparison.
    """

    def __init__(
        self, store: Store, tell: Callable[[str], None], memory: SeenBefore | None = None
    ) -> None:
        self._store = store
        self._tell = tell
        self._memory = memory
        self.proof = MirrorProof()

    def run(self) -> MirrorProof:
        """Read and check the whole mirror.

        Raises:
            MirrorBroken: the mirror has no head, or a head of another version.
            Unavailable: the place cannot be read.
        """
        head = read_head(self._store)
        require_complete(head)
        copy = MirrorCopy(self._store, head)
        with self._noting("the names of datasets and schemas"):
            copy.resources("schemas")
        for organization in head.organizations:
            with self._noting(f"organization {organization}"):
                self._organization(organization, copy.roster(organization))
                copy.grants(organization)
        for schema in head.schemas:
            with self._noting(f"schema {schema}"):
                self._schema(copy, schema)
        return self.proof

    def _organization(self, organization: str, roster: Roster | None) -> None:
        is_known = self._memory is not None and self._memory.has_seen_roster(
            ids.from_text(organization), roster
        )
        if roster is not None:
            words, founding = belief.head_words(roster), roster.found.hex()
            anchor = Anchor(organization, roster.number, words, founding, is_known)
            self.proof.anchors.append(anchor)

    def _schema(self, copy: MirrorCopy, schema: str) -> None:
        log = copy.log(schema)
        membership = log.ledger.membership
        log.ledger.check_ends(None if membership is None else membership.roster.number)
        if membership is None and log.ledger.version:
            self.proof.unsigned.append(schema)
        if self._memory is not None:
            self._memory.has_seen_log(ids.from_text(schema), log.ledger)
        with self._noting(f"schema {schema}"):
            copy.checkpoint(schema)
        self.proof.schemas += 1
        self.proof.commits += log.ledger.version
        objects = log.objects()
        for segment in objects.snapshot.segments:
            with self._noting(f"schema {schema}"):
                self._segment(objects, segment, schema)
        for group in objects.groups():
            with self._noting(f"schema {schema}"):
                self._group(objects, group, schema)

    def _segment(self, objects: SchemaObjects, segment: Segment, schema: str) -> None:
        page_digests = read_page_digests(self._store, objects, segment)
        for place in objects.pages(segment):
            with self._noting(f"schema {schema}"):
                self.proof.pages += len(read_pages(self._store, place, page_digests))

    def _group(self, objects: SchemaObjects, group: Group, schema: str) -> None:
        group_digests = read_runs(self._store, objects, group)
        rows_by_place, flaws = [], len(self.proof.flaws)
        for place in objects.rows(group):
            with self._noting(f"schema {schema}"):
                rows_by_place.append(read_rows(self._store, place, group_digests).rows)
                self.proof.rows += len(rows_by_place[-1])
        name = objects.ids(group)
        index = self._store.read(name)
        if flaws == len(self.proof.flaws) and index != index_ids(rows_by_place):
            raise altered(name)

    @contextmanager
    def _noting(self, where: str) -> Iterator[None]:
        """Record a fault inside the block, and continue after it."""
        try:
            yield
        except (Closed, Refused, Unsupported) as error:
            self.proof.flaws.append(f"{where}: {error.message}")
            self._tell(self.proof.flaws[-1])
