"""Messages by SMTP, against a server of the tests' own."""

from __future__ import annotations

import asyncio
import email
import email.policy
import queue
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from tests.server.api import PASSWORD, Api, basic, free_port, running_api, signed_values, text_of

pytestmark = pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")

USER, SECRET = "courier@mail.example", "swordfish"
SECONDS = 60


@dataclass
class Mailbox:
    """Takes every message for example.org; refuses mailboxes whose name begins with ``full``."""

    received: queue.Queue[tuple[str, list[str], EmailMessage]] = field(default_factory=queue.Queue)
    #: the server answers a message once it is set
    answers: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.answers.set()

    async def handle_RCPT(  # noqa: N802 - the library's name
        self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any
    ) -> str:
        if address.startswith("full"):
            return "452 mailbox full"
        envelope.rcpt_tos.append(address)
        return "250 ok"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        text = envelope.content.replace(b"\r\n", b"\n")
        message = email.message_from_bytes(text, policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        self.received.put((envelope.mail_from, envelope.rcpt_tos, message))
        await asyncio.to_thread(self.answers.wait, SECONDS)
        return "250 taken"

    def next(self) -> tuple[str, list[str], EmailMessage]:
        return self.received.get(timeout=SECONDS)


def _authenticate(_server: Any, _session: Any, _envelope: Any, _way: Any, data: Any) -> AuthResult:
    right = LoginPassword(USER.encode(), SECRET.encode())
    return AuthResult(success=data == right)


@pytest.fixture(scope="module")
def mailbox() -> Iterator[tuple[Mailbox, int]]:
    box = Mailbox()
    server = Controller(
        box,
        hostname="127.0.0.1",
        port=free_port(),
        authenticator=_authenticate,
        auth_required=True,
        auth_require_tls=False,
        ready_timeout=SECONDS,
    )
    server.start()
    try:
        yield box, server.port
    finally:
        server.stop()


@pytest.fixture(scope="module")
def posted(mailbox: tuple[Mailbox, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """An API that sends its messages to the mailbox."""
    url = f"smtp://{USER.replace('@', '%40')}:{SECRET}@127.0.0.1:{mailbox[1]}"
    with running_api(tmp_path_factory.mktemp("smtp"), email_url=url) as running:
        yield running


def test_a_registration_is_confirmed_and_a_password_reset_by_mail(
    posted: Api, mailbox: tuple[Mailbox, int]
) -> None:
    address = posted.new_address()
    answer = posted.register(address)
    assert (answer.status, answer.json()["mail"]) == (201, "sent")
    sender, recipients, message = mailbox[0].next()
    assert (sender, recipients) == (USER, [address])
    signed = signed_values(message)
    assert posted.call("POST", "/api/accounts/verify-registration/", signed).status == 200
    assert posted.token_pair(address, PASSWORD).status == 200

    path = "/api/accounts/send-reset-password-link/"
    assert posted.call("POST", path, {"email": address}).status == 200
    body = signed_values(mailbox[0].next()[2]) | {"password": "staple battery horse"}
    assert posted.call("POST", "/api/accounts/reset-password/", body).status == 200
    assert posted.token_pair(address, "staple battery horse").status == 200


def test_a_message_is_plain_text_and_html_of_the_same_words_and_tracks_nobody(
    posted: Api, mailbox: tuple[Mailbox, int]
) -> None:
    posted.register(posted.new_address())
    message = mailbox[0].next()[2]
    assert message.get_content_type() == "multipart/alternative"
    assert [part.get_content_type() for part in message.iter_parts()] == ["text/plain", "text/html"]
    plain, html = text_of(message), text_of(message, "html")
    assert "confirm the address within 7 days" in plain
    assert "confirm the address within 7 days" in html
    links = set(re.findall(r"https?://[^\s\"<>]+", plain + html))
    assert {link.split("/")[2] for link in links} == {"proxy.example:8080"}
    for tracking in ("<img", "<script", "<link", "src=", "url("):
        assert tracking not in html
    assert message["Message-ID"]
    assert message["Date"]


def test_a_new_password_ends_a_change_of_address_whose_link_is_not_sent_yet(
    posted: Api, mailbox: tuple[Mailbox, int]
) -> None:
    box, address, new = mailbox[0], posted.new_address(), "staple battery horse"
    posted.register(address)
    signed = signed_values(box.next()[2])
    assert posted.call("POST", "/api/accounts/verify-registration/", signed).status == 200
    headers = basic(address, PASSWORD)
    box.answers.clear()
    try:
        asked = {"email": posted.new_address(), "password": PASSWORD}
        path = "/api/accounts/change-email/"
        assert posted.call("POST", path, asked, headers=headers).status == 200
        assert box.next()[1] == [address]
        change = {"old_password": PASSWORD, "password": new, "password_confirm": new}
        path = "/api/accounts/change-password/"
        assert posted.call("POST", path, change, headers=headers).status == 200
    finally:
        box.answers.set()
    posted.register(after := posted.new_address())
    assert box.next()[1] == [after]


def test_a_mail_server_that_refuses_changes_no_answer_and_holds_up_no_other_message(
    posted: Api, mailbox: tuple[Mailbox, int]
) -> None:
    full, other = f"full-{posted.new_address()}", posted.new_address()
    assert posted.register(full).status == posted.register(other).status == 201
    assert mailbox[0].next()[1] == [other]
    log = posted.log.read_text()
    assert "a message could not be sent" in log
    assert full not in log
    assert SECRET not in log


def test_a_mail_server_that_is_away_stops_nobody_from_registering(tmp_path: Path) -> None:
    with running_api(tmp_path, email_url="smtp://127.0.0.1:1") as api:
        assert api.register(api.new_address()).status == 201
