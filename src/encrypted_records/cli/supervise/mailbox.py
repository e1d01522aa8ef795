"""Read the messages that an API without SMTP leaves in the data folder's ``mail/``."""

from __future__ import annotations

import asyncio
import email
import email.policy
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from encrypted_records.errors import NotFound

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
