"""Make services: a user with a token, which reaches nothing until the roster has its standing."""

from __future__ import annotations

from datetime import datetime

from django.db import IntegrityError, transaction
from django.utils import timezone

from encrypted_records.errors import Conflict, TooLarge
from encrypted_records.model import ids
from encrypted_records.model.roster import MAX_MEMBERS
from encrypted_records.server.accounts.models import User
from encrypted_records.server.organizations import audit, members
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.organizations.models import Organization
from encrypted_records.server.organizations.roster_tables import Service


def make(
    by: User,
    organization: Organization,
    *,
    service_id: str,
    name: str,
    digest: bytes,
    expires: datetime | None,
) -> tuple[Service, bool]:
    """Make a service; and whether it was not there, as the same, before.

    Args:
        digest: SHA-256 of its token, 32 bytes.

    Raises:
        Conflict: ``id_taken``; somebody else has the id, or the token.
        TooLarge: the organization has too many.
    """
    with transaction.atomic():
        locked = members.lock(organization)
        known = Service.objects.select_related("user").filter(pk=service_id).first()
        if known is not None:
            same = known.organization_id == locked.pk and bytes(known.digest) == digest
            if same and known.user.first_name == name:
                return known, False
            raise _taken()
        if locked.services.count() >= MAX_MEMBERS:
            raise TooLarge(f"an organization has at most {MAX_MEMBERS} services")
        try:
            with transaction.atomic():
                made = _store(locked, service_id, name, digest, expires)
        except IntegrityError:
            raise _taken() from None
        audit.note(by, Action.SERVICE_CREATED, locked.pk, ids.reference("users", service_id))
    return made, True


def _store(
    organization: Organization, service_id: str, name: str, digest: bytes, expires: datetime | None
) -> Service:
    # An address that nobody ever has (RFC 2606), and no password: only its token gets it in.
    user = User(
        pk=service_id,
        email=f"{service_id}@service.invalid",
        first_name=name,
        verified=timezone.now(),
        is_active=True,
    )
    user.set_unusable_password()
    user.save(force_insert=True)
    return Service.objects.create(
        user=user, organization=organization, digest=digest, expires=expires
    )


def _taken() -> Conflict:
    return Conflict(
        "a service's id or token is taken", code="id_taken", hint="make a new string for it"
    )
