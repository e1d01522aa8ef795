"""The objects of a mirror, and where they are stored: a folder, or a prefix of a bucket.

docs/SPEC.md, section 18, specifies their names and the head. Everything but the head and the
resources is frames of :mod:`encrypted_records.model.wire`, as the API returns them. A name
describes the object's content: the name of an object of rows includes the number of live rows, so
that removing a deleted record changes the name.

Objects are written whole or not at all, and never changed, because their names describe their
content. Only the head, :data:`HEAD`, is replaced, once in a run and as its last step.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import parse_qsl, urlsplit

import msgspec
from pyroaring import BitMap

from encrypted_records.errors import InvalidSetting, Locked, MirrorBroken, OutOfSpace, Unavailable
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model import strict_json
from encrypted_records.model.digests import RUN
from encrypted_records.model.ids import PATTERN, to_text
from encrypted_records.model.records import Group, Segment
from encrypted_records.proxy import disk

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Store


#: Maximum rows in an object: whole runs, and at most as many as the API returns at once.
ROWS = 15 * RUN
PAGES = 64
_NOBODY = BitMap()
_UID = "[0-9a-f]{32}"
#: Half of a digest, as in names.
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
#: The end of the year 9999, the last time that can be formatted.
_LAST_TIME = 253_402_300_799


class OrganizationHead(msgspec.Struct, forbid_unknown_fields=True):
    """``roster`` are the objects of its entries, ``grants`` is the object of its grants; ``number``
    and ``digest`` are those of the newest entry, 0 and empty without a roster.
    """

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
    """The newest complete run: the copied objects, the member who copied them (``member``), the API
    (``source``), and the time (``taken``, seconds since 1970; None before the first run is
    complete).
    """

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
        MirrorBroken: the place has no head, or a head of another version; or it names an object
            that a mirror cannot have.
        Unavailable: the store cannot be read.
    """
    data = store.read(HEAD)
    try:
        head = msgspec.json.decode(data, type=MirrorHead)
    except strict_json.UNREADABLE:
        raise MirrorBroken(
            f"{HEAD} is not the head of a mirror of this version",
            hint="use another copy, or a newer version of encrypted-records",
        ) from None
    if not _is_sound(head):
        raise MirrorBroken(f"{HEAD} was altered: it names what a mirror cannot hold")
    return head


def _is_sound(head: MirrorHead) -> bool:
    """Whether all names in a head are well-formed: otherwise the holder of the mirror could name
    any file.
    """
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
        MirrorBroken: ``mirror_incomplete``; no run has finished yet.
    """
    if head.taken is None:
        raise missing("the first copy has not come to its end")


def by_content(folder: str, data: bytes, ending: str = "") -> str:
    """The name of a content-addressed object."""
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
    """Rows of a group from ordinal ``first`` on: the ``live_rows`` live rows, and, for runs with
    dead rows, the digests of all rows.
    """

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
    """The objects of a schema in a mirror at one version."""

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
        """The groups with live rows, in the order of storing."""
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
        """The object with a page."""
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
        """The object with a row."""
        first, dead = ordinal - ordinal % ROWS, self.dead(group.uid)
        end = min(first + ROWS, group.count)
        live = end - first - (dead.range_cardinality(first, end) if dead else 0)
        return MirrorRows(f"{self._group(group)}/{first}-{live}", group, first, dead, live)

    def _segment(self, segment: Segment) -> str:
        return f"{self.folder}/segments/{segment.uid.hex()}"

    def _group(self, group: Group) -> str:
        return f"{self.folder}/groups/{group.uid.hex()}"


def is_ours(name: str) -> bool:
    """Whether an object's name is of a mirror, including one that was not written completely."""
    unfinished = _TEMPORARY.fullmatch(name)
    if unfinished is not None:
        name = unfinished[1] + unfinished[2]
    forms = (_RESOURCES, _ROSTER, _GRANTS, _LOG, _CHECKPOINT, _SEGMENT, _GROUP)
    return name == HEAD or any(form.fullmatch(name) for form in forms)


def is_beginning(name: str) -> bool:
    """Whether a killed run may have left an object in a place that has no head yet."""
    unfinished = _TEMPORARY.fullmatch(name)
    return unfinished is not None and unfinished[1] + unfinished[2] == HEAD


HEAD = "mirror.json"
#: Maximum bytes of an object. A reader accepts no more, because the holder may store anything.
MAX_BYTES = 1 << 30
_LOCK = ".lock"
_OPTIONS = frozenset({"endpoint", "region", "virtual_hosted"})


class Store(Protocol):
    """Objects by name; names have slashes between their parts.

    Attributes:
        look_seconds: how long a reader uses a head before it reads it again.
    """

    look_seconds: float

    def alone(self) -> AbstractContextManager[None]:
        """Lock other runs of ``ers mirror`` out until the block ends, if the place supports locks.

        Raises:
            Locked: ``mirror_in_use``; another run is using it.
            Unavailable: the place cannot be used.
        """

    def read(self, name: str) -> bytes:
        """
        Raises:
            MirrorBroken: ``mirror_incomplete``; there is no such object. ``mirror_altered``; it is
                not a file, or longer than :data:`MAX_BYTES`.
            Unavailable: the store cannot be read.
        """

    def write(self, name: str, data: bytes) -> None:
        """Store an object, replacing an earlier one; it is durable on return.

        Raises:
            OutOfSpace, Unavailable: it is not stored.
        """

    def delete(self, name: str) -> None:
        """Delete an object, if it is there.

        Raises:
            Unavailable: it cannot be deleted.
        """

    def names(self) -> Iterator[str]:
        """The names of all objects.

        Raises:
            Unavailable: the store cannot be read.
        """


def open_store(place: str) -> Store:
    """The store at a path, or at ``s3://bucket/prefix?endpoint=https://host``.

    Raises:
        InvalidSetting: it is not a place for a mirror.
    """
    scheme, mark, _ = place.partition("://")
    if not mark:
        return MirrorFolder(Path(place).expanduser())
    if scheme != "s3":
        raise InvalidSetting(
            "a mirror lies in a folder or in a bucket",
            hint="name a path, or s3://bucket/prefix?endpoint=https://host",
        )
    return _open_bucket(place)


def missing(name: str) -> MirrorBroken:
    return MirrorBroken(
        f"the mirror lacks an object: {name}",
        code="mirror_incomplete",
        hint="run ers mirror again; it copies what is missing",
    )


def _no_object(name: str) -> MirrorBroken:
    return MirrorBroken(f"what the mirror has under this name is no object of a mirror: {name}")


class MirrorFolder:
    """A folder, whose files only their owner can read."""

    look_seconds = 0.0

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def alone(self) -> Iterator[None]:
        try:
            disk.make_folder(self.path)
            handle = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise _failed(error) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Locked(
                "another run of ers mirror is at work in this folder",
                code="mirror_in_use",
                hint="wait until it has ended",
            ) from None
        except OSError as error:
            raise _failed(error) from None
        else:
            yield
        finally:
            os.close(handle)

    def read(self, name: str) -> bytes:
        # Do not follow links, and do not block on a pipe without a writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(self.path / name, flags), "rb") as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
                    raise _no_object(name)
                return file.read(MAX_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            raise missing(name) from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise _no_object(name) from None
            raise _failed(error) from None

    def write(self, name: str, data: bytes) -> None:
        path = self.path / name
        try:
            disk.make_folder(path.parent)
            disk.replace(path, data)
        except OSError as error:
            raise _failed(error) from None

    def delete(self, name: str) -> None:
        path = self.path / name
        try:
            path.unlink(missing_ok=True)
            # Remove empty folders up to the mirror itself.
            with suppress(OSError):
                for folder in path.parents:
                    if folder == self.path:
                        break
                    folder.rmdir()
        except OSError as error:
            raise _failed(error) from None

    def names(self) -> Iterator[str]:
        try:
            for folder, _, files in os.walk(self.path):
                for name in files:
                    path = (Path(folder) / name).relative_to(self.path)
                    if str(path) != _LOCK:
                        yield str(path)
        except OSError as error:
            raise _failed(error) from None


def _failed(error: OSError) -> Unavailable:
    why = (error.strerror or "it fails").lower()
    if error.errno == errno.ENOSPC:
        return OutOfSpace("the disk that holds the mirror is full")
    return Unavailable(f"the mirror's folder cannot be used: {why}")


class MirrorBucket:
    """A prefix of a bucket that speaks S3.

    Credentials come from the variables of the SDKs, such as ``AWS_ACCESS_KEY_ID``, and never from
    the URL, which lists of processes show.
    """

    look_seconds = 5.0

    def __init__(self, store: S3Store) -> None:
        self._store = store

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()  # S3 has no locks

    def read(self, name: str) -> bytes:
        import obstore  # noqa: PLC0415 - an extra

        with _answering():
            try:
                found = obstore.get(self._store, name)
                if found.meta["size"] > MAX_BYTES:
                    raise _no_object(name)
                return bytes(found.bytes())
            except FileNotFoundError:
                raise missing(name) from None

    def write(self, name: str, data: bytes) -> None:
        import obstore  # noqa: PLC0415 - an extra

        with _answering():
            # A single request, so that an object is stored as a whole or not at all.
            obstore.put(self._store, name, data, use_multipart=False)

    def delete(self, name: str) -> None:
        import obstore  # noqa: PLC0415 - an extra

        with _answering(), suppress(FileNotFoundError):
            obstore.delete(self._store, name)

    def names(self) -> Iterator[str]:
        import obstore  # noqa: PLC0415 - an extra

        with _answering():
            for page in obstore.list(self._store):
                for listed in page:
                    yield listed["path"]


def _open_bucket(url: str) -> MirrorBucket:
    """
    Raises:
        InvalidSetting: the URL has an invalid option, or ``obstore`` is not installed.
    """
    try:
        from obstore.store import S3Store  # noqa: PLC0415 - an extra
    except ImportError:
        raise InvalidSetting(
            "the mirror is a bucket, and obstore is not installed",
            hint="install encrypted-records[s3]",
        ) from None

    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    endpoint = options.get("endpoint", "")
    wrong = endpoint and not endpoint.startswith(("http://", "https://"))
    if not parts.netloc or wrong or set(options) - _OPTIONS:
        raise InvalidSetting(
            "the URL of the mirror's bucket cannot be used",
            hint="s3://bucket/prefix takes endpoint=https://host, region and virtual_hosted",
        )
    config: S3Config = {"endpoint": endpoint} if endpoint else {}
    with _answering():
        return MirrorBucket(
            S3Store(
                parts.netloc,
                prefix=parts.path.strip("/") or None,
                region=options.get("region", "us-east-1"),
                virtual_hosted_style_request=options.get("virtual_hosted", "false") == "true",
                client_options={"allow_http": endpoint.startswith("http://"), "timeout": "60s"},
                config=config,
            )
        )


@contextmanager
def _answering() -> Iterator[None]:
    """Translate the bucket's errors, without their texts, which may quote a request."""
    from obstore.exceptions import BaseError, GenericError  # noqa: PLC0415 - an extra

    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        is_known = type(error) is not GenericError
        outcome = f"refuses: {type(error).__name__}" if is_known else "does not answer, or fails"
        raise Unavailable(f"the mirror's bucket {outcome}") from None
