"""The objects of a mirror: their names, and what its head says (docs/SPEC.md, section 18).

Everything but the head and the resources is frames of :mod:`encrypted_records.model.wire`, as the
API hands them out. Each name says what the object holds: an object of rows also counts those that
live, so that one from which a deleted record has gone has another name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec
from pyroaring import BitMap

from encrypted_records.errors import MirrorBroken
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.mirror.store import HEAD, Store, missing
from encrypted_records.model.digests import RUN
from encrypted_records.model.ids import PATTERN, to_text
from encrypted_records.model.records import Group, Segment

#: The most rows in one object: whole runs, and no more than the API hands out at once.
ROWS = 15 * RUN
PAGES = 64
_NOBODY = BitMap()
_UID = "[0-9a-f]{32}"
#: A digest in a name is half of one.
_HALF = "[0-9a-f]{32}"
_NUMBER = "[0-9]{1,18}"
_SPAN = f"{_NUMBER}-{_NUMBER}"
_RESOURCES = re.compile(rf"resources/{_HALF}\.json")
_ROSTER = re.compile(f"organizations/({PATTERN})/roster/{_SPAN}")
_GRANTS = re.compile(f"organizations/({PATTERN})/grants/{_HALF}")
_LOG = re.compile(f"schemas/({PATTERN})/log/{_SPAN}")
_CHECKPOINT = re.compile(f"schemas/({PATTERN})/checkpoints/{_HALF}")
_SEGMENT = re.compile(f"schemas/({PATTERN})/segments/{_UID}/(?:header|digests|{_NUMBER})")
_GROUP = re.compile(f"schemas/({PATTERN})/groups/{_UID}/(?:digests|ids-{_NUMBER}|{_SPAN})")
_ID = re.compile(PATTERN)
_DIGEST = re.compile("[0-9a-f]{64}")
#: A file that a run was writing when it was killed.
_TEMPORARY = re.compile(r"(.*/|)\.([^/]+)\.[0-9a-f]{16}")
#: The end of the year 9999, behind which no time can be written.
_LAST_TIME = 253_402_300_799


class OrganizationHead(msgspec.Struct, forbid_unknown_fields=True):
    """``roster`` are the objects of its entries, ``grants`` that of its grants; ``number`` and
    ``digest`` are those of the newest entry, 0 and empty without a roster."""

    roster: list[str]
    number: int
    digest: str
    grants: str


class SchemaHead(msgspec.Struct, forbid_unknown_fields=True):
    """``log`` are the objects of its commits; ``version`` and ``digest`` are the log's;
    ``checkpoint`` is the object of its newest checkpoint, empty without one."""

    organization: str
    log: list[str]
    version: int
    digest: str
    checkpoint: str = ""


class MirrorHead(msgspec.Struct, forbid_unknown_fields=True):
    """The newest complete run: what was copied, by whom (``member``), from where (``source``), and
    when (``taken``, seconds since 1970; None before the first run is complete)."""

    format: Literal[1]
    source: str
    member: str
    taken: float | None = None
    resources: str = ""
    organizations: dict[str, OrganizationHead] = {}
    schemas: dict[str, SchemaHead] = {}


def read_head(store: Store) -> MirrorHead:
    """
    Raises:
        MirrorBroken: the place has none, or not one of this version; it names what a mirror cannot
            hold.
        Unavailable: the store cannot be read.
    """
    data = store.read(HEAD)
    try:
        head = msgspec.json.decode(data, type=MirrorHead)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise MirrorBroken(
            f"{HEAD} is not the head of a mirror of this version",
            hint="use another copy, or a newer version of encrypted-records",
        ) from None
    if not _is_sound(head):
        raise MirrorBroken(f"{HEAD} was altered: it names what a mirror cannot hold")
    return head


def _is_sound(head: MirrorHead) -> bool:
    """Whether everything that a head names has the form of it: the holder of the mirror could name
    any file."""
    if not (_ID.fullmatch(head.member) and head.source.isprintable()):
        return False
    if head.taken is None:
        return not (head.resources or head.organizations or head.schemas)
    return (
        0 <= head.taken <= _LAST_TIME
        and _RESOURCES.fullmatch(head.resources) is not None
        and all(_is_sound_organization(*item) for item in head.organizations.items())
        and all(_is_sound_schema(*item, head.organizations) for item in head.schemas.items())
    )


def _is_sound_organization(organization: str, named: OrganizationHead) -> bool:
    return (
        _ID.fullmatch(organization) is not None
        and all(_is_of(_ROSTER, name, organization) for name in named.roster)
        and _is_of(_GRANTS, named.grants, organization)
        and named.number >= 0
        and (_DIGEST.fullmatch(named.digest) is not None if named.number else not named.digest)
    )


def _is_sound_schema(schema: str, named: SchemaHead, organizations: Collection[str]) -> bool:
    return (
        _ID.fullmatch(schema) is not None
        and named.organization in organizations
        and all(_is_of(_LOG, name, schema) for name in named.log)
        and (not named.checkpoint or _is_of(_CHECKPOINT, named.checkpoint, schema))
        and named.version >= 0
        and _DIGEST.fullmatch(named.digest) is not None
    )


def _is_of(form: re.Pattern[str], name: str, owner: str) -> bool:
    match = form.fullmatch(name)
    return match is not None and match[1] == owner


def require_complete(head: MirrorHead) -> None:
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
class MirrorPages:
    """Pages of a segment, from number ``first`` on."""

    name: str
    segment: Segment
    first: int

    @property
    def numbers(self) -> range:
        return range(self.first, min(self.first + PAGES, self.segment.pages))


@dataclass(frozen=True, slots=True)
class MirrorRows:
    """Rows of a group from ordinal ``first`` on: the ``live_rows`` that live, and of runs in which
    others are dead the digests of all."""

    name: str
    group: Group
    first: int
    dead: BitMap
    live_rows: int

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
            yield from (place.name for place in self.pages(segment))
        for group in self.groups():
            yield self.digests(group)
            yield self.ids(group)
            yield from (place.name for place in self.rows(group))

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

    def pages(self, segment: Segment) -> list[MirrorPages]:
        return [self.page(segment, first) for first in range(0, segment.pages, PAGES)]

    def page(self, segment: Segment, number: int) -> MirrorPages:
        """The object that has a page."""
        first = number - number % PAGES
        return MirrorPages(f"{self._segment(segment)}/{first}", segment, first)

    def digests(self, group: Group) -> str:
        return f"{self._group(group)}/digests"

    def ids(self, group: Group) -> str:
        return f"{self._group(group)}/ids-{self.live_rows(group)}"

    def rows(self, group: Group) -> Iterator[MirrorRows]:
        """The objects of a group's rows; those without a live row are left out."""
        for first in range(0, group.count, ROWS):
            place = self.row(group, first)
            if place.live_rows:
                yield place

    def row(self, group: Group, ordinal: int) -> MirrorRows:
        """The object that has a row."""
        first, dead = ordinal - ordinal % ROWS, self.dead(group.uid)
        end = min(first + ROWS, group.count)
        live = end - first - (dead.range_cardinality(first, end) if dead else 0)
        return MirrorRows(f"{self._group(group)}/{first}-{live}", group, first, dead, live)

    def _segment(self, segment: Segment) -> str:
        return f"{self.folder}/segments/{segment.uid.hex()}"

    def _group(self, group: Group) -> str:
        return f"{self.folder}/groups/{group.uid.hex()}"


def is_ours(name: str) -> bool:
    """Whether an object is of a mirror, by its name; also one that was not written to its end."""
    unfinished = _TEMPORARY.fullmatch(name)
    if unfinished is not None:
        name = unfinished[1] + unfinished[2]
    forms = (_RESOURCES, _ROSTER, _GRANTS, _LOG, _CHECKPOINT, _SEGMENT, _GROUP)
    return name == HEAD or any(form.fullmatch(name) for form in forms)


def is_beginning(name: str) -> bool:
    """Whether a run that was killed may have left an object where there is no head yet."""
    unfinished = _TEMPORARY.fullmatch(name)
    return unfinished is not None and unfinished[1] + unfinished[2] == HEAD
