"""Signed links in messages, each of which works once.

The library's signers define the signed content and the lifetime of a link. This module adds a
random part to the ``signature``, which the library's MAC covers, and stores the SHA-256 of the
whole until the link is used or expires. Only the message contains the random part, so that a copy
of database and key is not sufficient to make a valid link.
"""

from __future__ import annotations

import secrets
from typing import Any, ClassVar

from django.db import transaction
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
from encrypted_records.server.accounts.digests import digest
from encrypted_records.server.accounts.models import Link, User

_RANDOM_BYTES = 24


class OneTime(URLParamsSigner):  # type: ignore[misc]  # the library has no types
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


class Verification(OneTime, RegisterSigner):  # type: ignore[misc]  # the library has no types
    MESSAGE = NotificationType.REGISTER_VERIFICATION
    TEMPLATES = "REGISTER_VERIFICATION_EMAIL_TEMPLATES"


class Reset(OneTime, ResetPasswordSigner):  # type: ignore[misc]  # the library has no types
    MESSAGE = NotificationType.RESET_PASSWORD_VERIFICATION
    TEMPLATES = "RESET_PASSWORD_VERIFICATION_EMAIL_TEMPLATES"


class NewAddress(OneTime, RegisterEmailSigner):  # type: ignore[misc]  # the library has no types
    MESSAGE = NotificationType.REGISTER_EMAIL_VERIFICATION
    TEMPLATES = "REGISTER_EMAIL_VERIFICATION_EMAIL_TEMPLATES"


def send(user: User, kind: type[OneTime], new_address: str = "") -> None:
    """Write to a user with a new link of that kind; those sent before go on working. Nothing is
    sent if the account was changed since the user was read, as a new password ends links.

    Args:
        new_address: the address to write to, which the link proves; the user's own if empty.
    """
    signer = kind({"user_id": user.pk})
    with transaction.atomic():
        # Locked as a change of password locks it, which then finds this link and ends it.
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


def use(signed: dict[str, Any], kind: type[OneTime]) -> Link:
    """The link with these values; it is used up when the surrounding transaction commits.

    Returns:
        The link, and its ``user`` with a row lock, so that no link is used twice concurrently.

    Raises:
        BadInput: the link is forged, was not sent from here, is too old, or was used before.
    """
    try:
        user = User.objects.select_for_update().filter(pk=signed["user_id"]).first()
        if user is None:
            raise invalid()
        verify_signer_or_bad_request(kind(signed, strict=False))
    except (SignatureError, UserNotFound, ValueError):
        raise invalid() from None
    sent = user.links.filter(pk=digest(signed["signature"]), expires__gt=timezone.now()).first()
    if sent is None:
        raise invalid()
    Link.objects.filter(pk=sent.pk).delete()
    sent.user = user
    return sent


def drop_expired() -> None:
    Link.objects.filter(expires__lte=timezone.now()).delete()


def invalid() -> BadInput:
    return BadInput(
        "the link is not valid, or no longer valid",
        code="invalid_link",
        hint="links work once and for a limited time; ask for a new message",
    )
