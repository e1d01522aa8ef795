"""The data folder: created once, only for its owner, used by one service at a time.

``format`` contains the version number of each side's file formats. A folder with another version is
refused by its number, and so is a folder that contains only other files. Otherwise, files of other
formats would look corrupt. ``mail/`` contains the messages of an API without SMTP.
"""

from __future__ import annotations

import asyncio
import email
import email.policy
import fcntl
import os
import pwd
import re
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import parse_qs, urlsplit

import click

from encrypted_records.errors import NotFound, Startup

#: The format versions that this version reads and writes, per side. A change of a side's files that
#: makes them unreadable for earlier or later code increases the number. Up to version 1, both sides
#: shared one number, which never changed.
FORMS: Mapping[str, int] = {"api": 2, "proxy": 2}
#: How long a start waits for a process that may be about to end: a side whose ``ers up`` was killed
#: has 8 seconds to end.
ENDING_SECONDS = 10.0
_POLL_SECONDS = 0.1


def prepare(folder: Path, sides: Collection[str] = tuple(FORMS)) -> None:
    """Prepare the folder for use by these sides, at every start.

    Raises:
        Startup: the folder cannot be created or written, is readable by others, contains data of
            another version, or belongs to another user.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        require_own(folder)
        with alone_in(folder):  # both sides may start for the first time at the same moment
            _check_format(folder, sides)
        _close_to_others(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Startup(
            f"the data folder {folder} cannot be used: {(error.strerror or str(error)).lower()}",
            hint="choose another with --data-dir, or let this user write there",
        ) from None


def require_own(folder: Path) -> None:
    """
    Raises:
        Startup: the folder belongs to another user, such as of a service, and root would leave
            files in it that this user cannot open.
    """
    owner = folder.stat().st_uid
    if owner != os.geteuid():
        name = str(owner)
        with suppress(KeyError):
            name = pwd.getpwuid(owner).pw_name
        raise Startup(
            f"the data folder {folder} belongs to the user {name}",
            hint=f"run the command as that user (runuser -u {name} -- ers ...), or name another"
            " folder with --data-dir",
        )


def _check_format(folder: Path, sides: Collection[str]) -> None:
    marker = folder / "format"
    if not marker.exists():
        if any(path != draft_of(marker) for path in folder.iterdir()):
            raise Startup(
                f"{folder} contains files and is not a data folder of this service",
                hint="name a new or empty folder with --data-dir",
            )
        content = "".join(f"{side} {number}\n" for side, number in FORMS.items())
        replace_file(marker, content.encode())
        return
    forms = _forms(marker.read_text(errors="replace"))
    if forms is None:
        raise Startup(
            f"{marker} is damaged: it should contain a number for each side",
            hint="restore the data folder from a backup, or name another with --data-dir",
        )
    for side in sides:
        _require_form(folder, side, forms[side])


def _forms(text: str) -> Mapping[str, int] | None:
    """The numbers in a folder's ``format``; None if the file is not of that form."""
    lines = [tuple(line.split()) for line in text.splitlines()]
    if len(lines) == 1 and len(lines[0]) == 1:  # of both, until 1
        lines = [(side, lines[0][0]) for side in FORMS]
    named = {line[0]: line[1] for line in lines if len(line) == 2}
    if len(lines) != len(FORMS) or named.keys() != FORMS.keys():
        return None
    if not all(number.isdecimal() and len(number) < 10 for number in named.values()):
        return None
    return {side: int(number) for side, number in named.items()}


def _require_form(folder: Path, side: str, number: int) -> None:
    """
    Raises:
        Startup: this version does not know the format.
    """
    known = FORMS[side]
    form = f"form {number} of the {side}"
    if number > known:
        raise Startup(
            f"the data folder {folder} is of a newer version: {form}, and this version knows"
            f" {known}",
            hint="update encrypted-records, or name another folder with --data-dir",
        )
    if number < known:
        raise Startup(
            f"the data folder {folder} is of an older version: {form}, and this one needs {known};"
            " nothing in it was touched",
            hint="start the version that made it, export the records (ers record export) and store"
            " them with this one in another folder; or name another with --data-dir",
        )


def _close_to_others(folder: Path) -> None:
    if folder.stat().st_mode & 0o077:
        with suppress(PermissionError):
            folder.chmod(0o700)
    if folder.stat().st_mode & 0o077:
        raise Startup(
            f"other users can read the data folder {folder}, which contains keys",
            hint=f"its owner can protect it: chmod 700 {folder}",
        )


def for_owner(path: str, flags: int) -> int:
    """An ``opener`` for :func:`open` whose new files only their owner can read and write."""
    return os.open(path, flags, 0o600)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Other processes that call this for the folder wait until the block ends, unless its file
    system locks no folders, such as NFS.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def draft_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def replace_file(path: Path, content: bytes) -> None:
    """Write a file only for its owner, completely or not at all, even if this process is killed or
    the power fails. The caller holds a lock.
    """
    draft = draft_of(path)
    draft.unlink(missing_ok=True)
    try:
        with open(draft, "xb", opener=for_owner) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        with suppress(OSError):  # some file systems of a network sync no folders
            sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flush a file or folder to disk, so that it survives a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def hold(folder: Path, role: str, *, wait: bool = True) -> Iterator[None]:
    """Hold the folder as the only ``role`` (up, api or proxy) while the block runs.

    The operating system releases the lock whenever this process ends, however it ends.

    Args:
        wait: wait for ENDING_SECONDS if another process holds it, because that may be about to end.

    Raises:
        Startup: another process holds it, or its file system has no locks.
    """
    path = folder / f"{role}.lock"
    with open(path, "a+", opener=for_owner) as file:
        deadline = time.monotonic() + (ENDING_SECONDS if wait else 0.0)
        is_reported = False
        while not _take(file):
            file.seek(0)
            holder = file.read(20).strip() or "unknown"
            if time.monotonic() >= deadline:
                raise Startup(
                    f"another ers {role} (process {holder}) is using the data folder {folder}",
                    hint="stop it first, or name another folder with --data-dir",
                )
            if not is_reported:
                click.echo(
                    f"Waiting up to {ENDING_SECONDS:.0f} seconds for another ers {role} (process"
                    f" {holder}) to end, which is using the data folder {folder}",
                    err=True,
                )
                is_reported = True
            time.sleep(_POLL_SECONDS)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _take(file: IO[str]) -> bool:
    """Lock the file, unless another process has."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise Startup(
            f"{file.name} cannot be locked: {(error.strerror or str(error)).lower()}",
            hint="name a folder on a disk of this machine with --data-dir",
        ) from None
    return True


_LINK = re.compile(r"https?://\S+")


@dataclass(frozen=True, slots=True)
class SignedLink:
    """The three values that prove receipt of a message, and the page that the link leads to."""

    path: str
    user_id: str
    timestamp: int
    signature: str


def signed_link(url: str) -> SignedLink | None:
    """Parse a URL as a signed link; None for other URLs."""
    try:
        parts = urlsplit(url.strip())
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        return SignedLink(parts.path, query["user_id"], int(query["timestamp"]), query["signature"])
    except (KeyError, ValueError):
        return None


async def wait_for_link(folder: Path, address: str, *, seconds: float = 10.0) -> SignedLink:
    """:func:`newest_link`, with a wait: the API answers before it writes the message."""
    deadline = asyncio.get_running_loop().time() + seconds
    others: set[str] = set()
    while True:
        try:
            return newest_link(folder, address, others)
        except NotFound:
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(0.05)


def newest_link(folder: Path, address: str, others: set[str] | None = None) -> SignedLink:
    """The signed link in the newest message to ``address``.

    Args:
        others: names of messages without a link, which are not read again; this call adds more.

    Raises:
        NotFound: no message to the address contains a link.
    """
    others = set() if others is None else others
    messages = [
        (entry.stat().st_mtime_ns, entry.name)
        for entry in (os.scandir(folder) if folder.is_dir() else ())
        if entry.name.endswith(".eml") and entry.name not in others
    ]
    for _, name in sorted(messages, reverse=True):
        if link := _link_to(address, (folder / name).read_bytes()):
            return link
        others.add(name)
    raise NotFound(
        f"no message with a signed link to {address} was found in {folder}",
        hint="check the API's log: it says what happened to the message",
    )


def _link_to(address: str, written: bytes) -> SignedLink | None:
    # Parsing a message takes a hundred times as long as checking that it is for another address.
    if address.isascii() and address.lower().encode() not in written.lower():
        return None
    message = email.message_from_bytes(written, policy=email.policy.default)
    to = message["To"].addresses if message["To"] else ()
    if address.lower() not in {recipient.addr_spec.lower() for recipient in to}:
        return None
    body = message.get_body(("plain",))
    links = (signed_link(url) for url in _LINK.findall(body.get_content() if body else ""))
    return next((link for link in links if link), None)
