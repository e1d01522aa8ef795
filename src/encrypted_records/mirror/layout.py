"""The objects of a mirror: their names, and what its head says (docs/SPEC.md, section 18).

Everything but the head and the resources is frames of :mod:`encrypted_records.model.wire`, as the
API hands them out. Each name says what the object holds: an object of rows also counts those that
live, so that one from which a deleted record has gone has another name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec
from pyroaring import BitMap

from encrypted_records.errors import MirrorBroken
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.mirror.store import HEAD, Store, missing
from encrypted_records.model.digests import RUN
from encrypted_records.model.ids import to_text
from encrypted_records.model.records import Group, Segment

#: Of one object: whole runs, and no more rows than the API hands out at once.
ROWS = 15 * RUN
PAGES = 64
#: What a run of ``ers mirror`` may delete; anything else in the place is not a mirror's.
FOLDERS = ("organizations/", "resources/", "schemas/")
_NOBODY = BitMap()


class OrganizationHead(msgspec.Struct, forbid_unknown_fields=True):
    """``roster`` are the objects of its entries, ``grants`` that of its grants; ``number`` and
    ``digest`` are those of the newest entry, 0 and empty without a roster."""

    roster: list[str]
    number: int
    digest: str
    grants: str


class SchemaHead(msgspec.Struct, forbid_unknown_fields=True):
    """``log`` are the objects of its commits; ``version`` and ``digest`` are the log's."""

    organization: str
    log: list[str]
    version: int
    digest: str


class Head(msgspec.Struct, forbid_unknown_fields=True):
    """The newest complete run: what was copied, by whom (``member``), from where (``source``), and
    when (``taken``, seconds since 1970; None before the first run is complete)."""

    format: Literal[1]
    source: str
    member: str
    taken: float | None = None
    resources: str = ""
    organizations: dict[str, OrganizationHead] = {}
    schemas: dict[str, SchemaHead] = {}


def read_head(store: Store) -> Head:
    """
    Raises:
        MirrorBroken: the place has none, or not one of this version.
        Unavailable: the store cannot be read.
    """
    data = store.read(HEAD)
    try:
        return msgspec.json.decode(data, type=Head)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise MirrorBroken(
            f"{HEAD} is not the head of a mirror of this version",
            hint="use another copy, or a newer version of encrypted-records",
        ) from None


def require_complete(head: Head) -> None:
    """
    Raises:
        MirrorBroken: ``mirror_incomplete``; no run has come to its end yet.
    """
    if head.taken is None:
        raise missing("the first copy has not come to its end")


def by_content(folder: str, data: bytes, ending: str = "") -> str:
    """The name of an object that is named by its bytes."""
    return f"{folder}/{hashlib.sha256(data).hexdigest()[:32]}{ending}"


@dataclass(frozen=True, slots=True)
class PageObject:
    """Pages of a segment, from number ``first`` on."""

    name: str
    segment: Segment
    first: int

    @property
    def numbers(self) -> range:
        return range(self.first, min(self.first + PAGES, self.segment.pages))


@dataclass(frozen=True, slots=True)
class RowObject:
    """Rows of a group from ordinal ``first`` on: those that live, and of runs in which others are
    dead the digests of all."""

    name: str
    group: Group
    first: int
    dead: BitMap

    @property
    def ordinals(self) -> range:
        return range(self.first, min(self.first + ROWS, self.group.count))

    @property
    def live(self) -> list[int]:
        return [ordinal for ordinal in self.ordinals if ordinal not in self.dead]


@dataclass(frozen=True, slots=True)
class SchemaObjects:
    """The objects that a mirror has of a schema at one version."""

    schema: bytes
    snapshot: Snapshot

    @property
    def folder(self) -> str:
        return f"schemas/{to_text(self.schema)}"

    def names(self) -> Iterator[str]:
        for segment in self.snapshot.segments:
            yield self.header(segment)
            yield self.page_digests(segment)
            yield from (one.name for one in self.pages(segment))
        for group in self.groups():
            yield self.digests(group)
            yield self.ids(group)
            yield from (one.name for one in self.rows(group))

    def groups(self) -> Iterator[Group]:
        """The groups of which a row lives, in the order of storing."""
        for uid, state in self.snapshot.groups.items():
            if len(self.dead(uid)) < state.group.count:
                yield state.group

    def dead(self, group: bytes) -> BitMap:
        return self.snapshot.dead.get(group, _NOBODY)

    def live_rows(self, group: Group) -> int:
        return group.count - len(self.dead(group.uid))

    def header(self, segment: Segment) -> str:
        return f"{self._segment(segment)}/header"

    def page_digests(self, segment: Segment) -> str:
        return f"{self._segment(segment)}/digests"

    def pages(self, segment: Segment) -> list[PageObject]:
        return [self.page(segment, first) for first in range(0, segment.pages, PAGES)]

    def page(self, segment: Segment, number: int) -> PageObject:
        """The object that has a page."""
        first = number - number % PAGES
        return PageObject(f"{self._segment(segment)}/{first}", segment, first)

    def digests(self, group: Group) -> str:
        return f"{self._group(group)}/digests"

    def ids(self, group: Group) -> str:
        return f"{self._group(group)}/ids-{self.live_rows(group)}"

    def rows(self, group: Group) -> Iterator[RowObject]:
        """The objects of a group's rows; those without a live row are left out."""
        for first in range(0, group.count, ROWS):
            one = self.row(group, first)
            if not one.name.endswith("-0"):
                yield one

    def row(self, group: Group, ordinal: int) -> RowObject:
        """The object that has a row."""
        first, dead = ordinal - ordinal % ROWS, self.dead(group.uid)
        end = min(first + ROWS, group.count)
        live = end - first - (dead.range_cardinality(first, end) if dead else 0)
        return RowObject(f"{self._group(group)}/{first}-{live}", group, first, dead)

    def _segment(self, segment: Segment) -> str:
        return f"{self.folder}/segments/{segment.uid.hex()}"

    def _group(self, group: Group) -> str:
        return f"{self.folder}/groups/{group.uid.hex()}"


def is_ours(name: str) -> bool:
    """Whether an object is of a mirror, by its name."""
    return name == HEAD or name.startswith(FOLDERS)


def strangers(names: Collection[str]) -> list[str]:
    """Names in a place that a mirror has not; temporary files of the head do not count."""
    return [name for name in names if not is_ours(name) and not name.startswith(f".{HEAD}.")]
