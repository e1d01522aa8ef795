"""The places where a mirror lies: a folder, or a prefix of a bucket.

Objects are written whole or not at all, and never changed: their names say what they hold. Only
the head, :data:`HEAD`, is replaced, once in a run and as its last step.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl, urlsplit

from encrypted_records.errors import InvalidSetting, Locked, MirrorBroken, OutOfSpace, Unavailable
from encrypted_records.proxy import disk

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Store

HEAD = "mirror.json"
#: The most bytes of one object; a reader takes no more from a holder, who may name anything.
MAX_BYTES = 1 << 30
_LOCK = ".lock"
_OPTIONS = frozenset({"endpoint", "region", "virtual_hosted"})


class Store(Protocol):
    """Objects by name; names have slashes between their parts.

    Attributes:
        look_seconds: how long a reader goes on with a head that it has read.
    """

    look_seconds: float

    def alone(self) -> AbstractContextManager[None]:
        """Keep other runs of ``ers mirror`` out until the block ends, as far as the place can.

        Raises:
            Locked: ``mirror_in_use``; another run is at work there.
            Unavailable: the place cannot be used.
        """

    def read(self, name: str) -> bytes:
        """
        Raises:
            MirrorBroken: ``mirror_incomplete``; there is no such object. ``mirror_altered``; it is
                no file, or longer than :data:`MAX_BYTES`.
            Unavailable: the store cannot be read.
        """

    def write(self, name: str, data: bytes) -> None:
        """Store an object, in place of an earlier one; it is durable on return.

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
        InvalidSetting: it is no place for a mirror.
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
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise _failed(error) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Locked(
                "another run of ers mirror is at work in this folder",
                code="mirror_in_use",
                hint="wait until it has ended",
            ) from None
        else:
            yield
        finally:
            os.close(handle)

    def read(self, name: str) -> bytes:
        # Not through a link, and without waiting for the other end of a pipe.
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
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            disk.replace(path, data)
        except OSError as error:
            raise _failed(error) from None

    def delete(self, name: str) -> None:
        path = self.path / name
        try:
            path.unlink(missing_ok=True)
            # Up to the mirror itself, as far as nothing else is there.
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

    Credentials come as the SDKs have them, from ``AWS_ACCESS_KEY_ID`` and its kin: never from the
    URL, which lists of processes show.
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
            # In one request: an object is there as a whole, or not at all.
            obstore.put(self._store, name, data, use_multipart=False)

    def delete(self, name: str) -> None:
        import obstore  # noqa: PLC0415 - an extra

        with _answering(), suppress(FileNotFoundError):
            obstore.delete(self._store, name)

    def names(self) -> Iterator[str]:
        import obstore  # noqa: PLC0415 - an extra

        with _answering():
            for some in obstore.list(self._store):
                for listed in some:
                    yield listed["path"]


def _open_bucket(url: str) -> MirrorBucket:
    """
    Raises:
        InvalidSetting: the URL has an option that cannot be, or ``obstore`` is not installed.
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
    """Have errors of the bucket say what they mean here, without its words, which may quote a
    request."""
    from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra

    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        raise Unavailable(
            f"the mirror's bucket does not answer, or refuses: {type(error).__name__}"
        ) from None
