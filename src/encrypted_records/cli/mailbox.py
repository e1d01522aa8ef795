"""Read the messages that an API without SMTP leaves in the data folder's ``mail/``."""

from __future__ import annotations

import asyncio
import email
import email.policy
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from encrypted_records.errors import NotFound

_LINK = re.compile(r"https?://\S+")


@dataclass(frozen=True, slots=True)
class SignedLink:
    """The three values that prove a message was received, and the page it leads to."""

    path: str
    user_id: str
    timestamp: int
    signature: str


async def wait_for_link(folder: Path, address: str, *, seconds: float = 10.0) -> SignedLink:
    """:func:`newest_link`, once it is there: the API answers first and writes messages after."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            return newest_link(folder, address)
        except NotFound:
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(0.05)


def newest_link(folder: Path, address: str) -> SignedLink:
    """The signed link in the newest message to ``address``.

    Raises:
        NotFound: no message to it holds one.
    """
    newest_first = sorted(
        folder.glob("*.eml"), key=lambda path: path.stat().st_mtime_ns, reverse=True
    )
    for path in newest_first:
        with path.open("rb") as file:
            message = email.message_from_binary_file(file, policy=email.policy.default)
        to = message["To"].addresses if message["To"] else ()
        if address.lower() not in {one.addr_spec.lower() for one in to}:
            continue
        body = message.get_body(("plain",))
        for url in _LINK.findall(body.get_content() if body else ""):
            parts = urlsplit(url)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if {"user_id", "timestamp", "signature"} <= query.keys():
                return SignedLink(
                    parts.path, query["user_id"], int(query["timestamp"]), query["signature"]
                )
    raise NotFound(
        f"no message with a signed link to {address} lies in {folder}",
        hint="look at the API's log: it says what became of the message",
    )
