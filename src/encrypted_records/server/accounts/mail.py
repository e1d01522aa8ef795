"""E-mail messages: their texts and their delivery.

A separate thread sends them, for two reasons: requests do not wait for a mail server, and the
duration of a request does not reveal whether an address has an account. A message that cannot be
sent is logged without its address; repeating the request sends another.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.core.mail.backends.base import BaseEmailBackend
from django.core.mail.message import EmailMessage
from django.db import connection
from django.template.loader import render_to_string
from rest_registration.utils.signers import URLParamsSigner

from encrypted_records.server.accounts import limits
from encrypted_records.server.accounts.models import User

T = TypeVar("T")
#: :class:`FolderBackend`, as the settings name it.
FOLDER_BACKEND = "encrypted_records.server.accounts.mail.FolderBackend"
#: A message in the folder goes after this; no link works for longer.
KEPT = timedelta(days=7)
_log = logging.getLogger(__name__)
_courier = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mail")
_LINK = re.compile(r"^https?://\S+$", re.MULTILINE)


def later(write: Callable[[T], None], argument: T) -> None:
    """Let the mail thread write and send a message, before or after the request is answered."""
    _courier.submit(_deliver, write, argument)


def _deliver(write: Callable[[T], None], argument: T) -> None:
    try:
        connection.close_if_unusable_or_obsolete()
        write(argument)
    except Exception as error:  # whatever a mail server does, the courier goes on
        _log.error("a message could not be sent", exc_info=error)


def may_write_to(address: str) -> bool:
    """Whether an address may get one more message now, so that its mailbox is not filled."""
    return limits.count_towards("messages", address.casefold()) is None


class FolderBackend(BaseEmailBackend):
    """Writes each message as a file under ``mail/``, and shows its link or logs its path.

    For one's own machine, where the person who registers reads the terminal: it shows the link as
    well. What is no terminal may be a log that is kept, and a link there would be a way in for
    anyone who reads it.
    """

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        folder = _folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        drop_old()
        for message in email_messages:
            name = f"{time.strftime('%Y%m%dT%H%M%S')}-{uuid.uuid4().hex[:8]}"
            draft = folder / f".{name}.part"
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as stream:
                stream.write(message.message().as_bytes())
            draft.rename(folder / f"{name}.eml")
            link = _LINK.search(str(message.body))
            if link and _shows_links():
                print(f"mail: {message.subject}\n  {link.group()}", file=sys.stderr, flush=True)  # noqa: T201 - the message's way to its reader
            else:
                _log.info("a message is in %s", folder / f"{name}.eml")
        return len(email_messages)


def _folder() -> Path:
    return Path(settings.DATA_DIR) / "mail"


def _shows_links() -> bool:
    chosen: str = settings.MAIL_LINKS
    return sys.stderr.isatty() if chosen == "terminal" else chosen == "always"


def drop_old() -> None:
    """Delete the messages of the folder whose links have all expired."""
    oldest = time.time() - KEPT.total_seconds()
    with suppress(FileNotFoundError), os.scandir(_folder()) as entries:
        for entry in entries:
            if entry.name.endswith((".eml", ".part")):
                with suppress(FileNotFoundError):  # another process was first
                    if entry.is_file() and entry.stat().st_mtime < oldest:
                        Path(entry).unlink()


def link_context(user: User, user_address: str, data: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Values for the templates of signed links: the link, and the three values it is made of."""
    signer: URLParamsSigner = data["params_signer"]
    return {
        "email": user_address,
        "verification_url": signer.get_url(),
        "signed": signer.get_signed_data(),
    }


def send(address: str, subject: str, template: str, context: dict[str, Any]) -> None:
    """Send a message, as text and as HTML, unless the address had enough of them."""
    if may_write_to(address):
        _send(address, subject, template, context)


def _send(address: str, subject: str, template: str, context: dict[str, Any]) -> None:
    text, html = (render_to_string(f"{template}.{form}", context) for form in ("txt", "html"))
    message = EmailMultiAlternatives(subject=subject, body=text, to=[address])
    message.attach_alternative(html, "text/html")
    message.send()


def send_address_notice(address: str, *, is_done: bool) -> None:
    """Tell the present or former address of an account that the account is to get another one, or
    has it.

    It is sent however many messages the address had: a thief must not be able to suppress it by
    having other messages sent first.
    """
    subject = "The address of your account " + ("was changed" if is_done else "is to change")
    context = {"public_url": settings.PUBLIC_URL, "is_done": is_done}
    _send(address, subject, "accounts/address_notice", context)


def send_deleted(address: str) -> None:
    """Tell the former address of an account that it is deleted, however many messages it had."""
    _send(address, "Your account is deleted", "accounts/account_deleted", {})


def send_already_registered(user: User) -> None:
    """Tell the holder of an account about an attempt to register with its address."""
    context = {"public_url": settings.PUBLIC_URL}
    send(user.email, "You already have an account", "accounts/already_registered", context)
