"""E-mail messages: their texts, their links and their delivery.

A separate thread sends them, for two reasons: requests do not wait for a mail server, and the
duration of a request does not reveal whether an address has an account. A message that cannot be
sent is logged without its address; repeating the request sends another message.

Signed links in messages work only once. The library's signers define the signed content and the
lifetime of a link. This module adds a random part to the ``signature``, which the library's MAC
covers, and stores the SHA-256 of the whole in the database until the link is used or expires. Only
the message contains the random part, so that a copy of database and key is not sufficient to make a
valid link.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.core.mail.backends.base import BaseEmailBackend
from django.core.mail.message import EmailMessage
from django.db import connection, transaction
from django.template.loader import render_to_string
from django.utils import timezone
from rest_registration.exceptions import SignatureError, UserNotFound
from rest_registration.notifications.email import send_verification_notification
from rest_registration.notifications.enums import NotificationType
from rest_registration.settings import registration_settings
from rest_registration.signers.register import RegisterSigner
from rest_registration.signers.register_email import RegisterEmailSigner
from rest_registration.signers.reset_password import ResetPasswordSigner
from rest_registration.utils.signers import URLParamsSigner
from rest_registration.utils.verification import verify_signer_or_bad_request

from encrypted_records.errors import BadInput
from encrypted_records.server.accounts import limits
from encrypted_records.server.accounts.logins import digest
from encrypted_records.server.accounts.models import Link, User

T = TypeVar("T")
#: The path of :class:`FolderBackend`, for the settings.
FOLDER_BACKEND = "encrypted_records.server.accounts.mail.FolderBackend"
#: Messages in the folder are deleted after this time; no link works for longer.
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
    except Exception as error:  # the thread must go on, whatever a mail server does
        _log.error("a message could not be sent", exc_info=error)


def may_write_to(address: str) -> bool:
    """Whether another message may be sent to an address now; the limit keeps its mailbox from
    filling up.
    """
    return limits.count_towards("messages", address.casefold()) is None


class FolderBackend(BaseEmailBackend):
    """Writes each message as a file under ``mail/``, and shows its link or logs its path.

    For a personal machine, where the person who registers reads the terminal: there it also shows
    the link. Output that is not a terminal may be a stored log; a link there would give access to
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
    """Values for the templates of signed links: the link, and the three values that it contains."""
    signer: URLParamsSigner = data["params_signer"]
    return {
        "email": user_address,
        "verification_url": signer.get_url(),
        "signed": signer.get_signed_data(),
    }


def send(address: str, subject: str, template: str, context: dict[str, Any]) -> None:
    """Send a message, as text and as HTML, unless the address has reached its limit."""
    if may_write_to(address):
        _send(address, subject, template, context)


def _send(address: str, subject: str, template: str, context: dict[str, Any]) -> None:
    text, html = (render_to_string(f"{template}.{form}", context) for form in ("txt", "html"))
    message = EmailMultiAlternatives(subject=subject, body=text, to=[address])
    message.attach_alternative(html, "text/html")
    message.send()


def send_address_notice(address: str, *, is_done: bool) -> None:
    """Tell the current or former address of an account that its address will change, or has
    changed.

    It is sent regardless of the limit: a thief must not be able to suppress it by having other
    messages sent first.
    """
    subject = "The address of your account " + ("was changed" if is_done else "is to change")
    context = {"public_url": settings.PUBLIC_URL, "is_done": is_done}
    _send(address, subject, "accounts/address_notice", context)


def send_deleted(address: str) -> None:
    """Tell the former address of an account that it is deleted, regardless of the limit."""
    _send(address, "Your account is deleted", "accounts/account_deleted", {})


def send_already_registered(user: User) -> None:
    """Tell the holder of an account about an attempt to register with its address."""
    context = {"public_url": settings.PUBLIC_URL}
    send(user.email, "You already have an account", "accounts/already_registered", context)


_RANDOM_BYTES = 24


class OneTimeLink(URLParamsSigner):  # type: ignore[misc]  # the library has no types
    """A signer whose signature is ``<random part>.<MAC>``."""

    MESSAGE: ClassVar[NotificationType]
    TEMPLATES: ClassVar[str]

    def __init__(self, data: dict[str, Any], request: None = None, strict: bool = True) -> None:
        sent, _, _ = str(data.get(self.SIGNATURE_FIELD, "")).partition(".")
        self._random = sent or secrets.token_urlsafe(_RANDOM_BYTES)
        super().__init__(data, request=request, strict=strict)

    def _calculate_signature(self, data: dict[str, Any]) -> str:
        mac = super()._calculate_signature(data | {"random": self._random})
        return f"{self._random}.{mac}"


class VerificationLink(OneTimeLink, RegisterSigner):  # type: ignore[misc]  # the library has no types
    MESSAGE = NotificationType.REGISTER_VERIFICATION
    TEMPLATES = "REGISTER_VERIFICATION_EMAIL_TEMPLATES"


class ResetLink(OneTimeLink, ResetPasswordSigner):  # type: ignore[misc]  # the library has no types
    MESSAGE = NotificationType.RESET_PASSWORD_VERIFICATION
    TEMPLATES = "RESET_PASSWORD_VERIFICATION_EMAIL_TEMPLATES"


class NewAddressLink(OneTimeLink, RegisterEmailSigner):  # type: ignore[misc]  # the library has no types
    MESSAGE = NotificationType.REGISTER_EMAIL_VERIFICATION
    TEMPLATES = "REGISTER_EMAIL_VERIFICATION_EMAIL_TEMPLATES"


def send_link(user: User, kind: type[OneTimeLink], new_address: str = "") -> None:
    """Send a user a new link of this kind; earlier links stay valid. Nothing is sent if the account
    was changed since the user was read, because a new password ends links.

    Args:
        new_address: the address to write to, which the link proves; the user's address if empty.
    """
    signer = kind({"user_id": user.pk})
    with transaction.atomic():
        # Locked as for a change of password, which then finds this link and ends it.
        if not User.objects.unchanged(user).select_for_update().exists():
            return
        Link.objects.create(
            digest=digest(signer.calculate_signature()),
            user=user,
            expires=timezone.now() + signer.get_valid_period(),
            new_address=new_address,
        )
    send_verification_notification(
        kind.MESSAGE,
        user,
        {"params_signer": signer},
        getattr(registration_settings, kind.TEMPLATES),
        custom_user_address=new_address or None,
    )


def use_link(signed: dict[str, Any], kind: type[OneTimeLink]) -> Link:
    """The link with these values; it is used up when the surrounding transaction commits.

    Returns:
        The link, and its ``user`` with a row lock, so that no link is used twice concurrently.

    Raises:
        BadInput: the link is forged, was not sent from here, is too old, or was used before.
    """
    try:
        user = User.objects.select_for_update().filter(pk=signed["user_id"]).first()
        if user is None:
            raise invalid_link()
        verify_signer_or_bad_request(kind(signed, strict=False))
    except (SignatureError, UserNotFound, ValueError):
        raise invalid_link() from None
    sent = user.links.filter(pk=digest(signed["signature"]), expires__gt=timezone.now()).first()
    if sent is None:
        raise invalid_link()
    Link.objects.filter(pk=sent.pk).delete()
    sent.user = user
    return sent


def drop_expired_links() -> None:
    Link.objects.filter(expires__lte=timezone.now()).delete()


def invalid_link() -> BadInput:
    return BadInput(
        "the link is not valid, or no longer valid",
        code="invalid_link",
        hint="links work once and for a limited time; ask for a new message",
    )
