"""Reading the link out of a message that the API left in a file."""

from __future__ import annotations

import asyncio
import os
from email.message import EmailMessage
from pathlib import Path

import pytest

from encrypted_records.cli.data_folder import SignedLink, newest_link, wait_for_link
from encrypted_records.errors import NotFound

LINK = "http://127.0.0.1:8080/verify-registration/?user_id=7&timestamp={}&signature=a%3Ab-c"


def leave(folder: Path, to: str, body: str, *, at: int) -> None:
    message = EmailMessage()
    message["To"] = to
    message.set_content(body, cte="quoted-printable")
    message.add_alternative(f"<p>{body}</p>", subtype="html")
    path = folder / f"{at}.eml"
    path.write_bytes(bytes(message))
    os.utime(path, (at, at))


def test_the_newest_link_to_the_address_is_found(tmp_path: Path) -> None:
    leave(tmp_path, "ada@example.org", f"Open\n\n{LINK.format(1)}\n", at=100)
    leave(tmp_path, "Ada <ADA@example.org>", f"Open\n\n{LINK.format(2)}\n", at=200)
    leave(tmp_path, "bob@example.org", f"Open\n\n{LINK.format(3)}\n", at=300)
    leave(tmp_path, "ada@example.org", "You have an account: http://127.0.0.1:8080", at=400)
    found = newest_link(tmp_path, "ada@example.org")
    assert found == SignedLink("/verify-registration/", "7", 2, "a:b-c")


def test_no_link_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=str(tmp_path)):
        newest_link(tmp_path, "ada@example.org")


def test_a_message_that_comes_a_little_later_is_waited_for(tmp_path: Path) -> None:
    async def run() -> SignedLink:
        loop = asyncio.get_running_loop()
        loop.call_later(
            0.2, lambda: leave(tmp_path, "ada@example.org", LINK.format(5) + "\n", at=100)
        )
        return await wait_for_link(tmp_path, "ada@example.org")

    assert asyncio.run(run()).timestamp == 5
