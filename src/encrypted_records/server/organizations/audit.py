"""The audit log, for the owners of the organization.

The caller passes the user, because credentials are read only in views. An entry is written in the
transaction of the action, so that neither exists without the other.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from django.core.cache import cache

from encrypted_records import logs
from encrypted_records.server.accounts.models import User
from encrypted_records.server.db.statements import insert
from encrypted_records.server.http.middleware import source
from encrypted_records.server.organizations.models import AuditEntry
from encrypted_records.server.records.store import certain_now

KEPT = timedelta(days=365)
#: For frequent actions, one entry stands for the same action during this many seconds.
_ONCE_IN = 60


class Action(StrEnum):
    LOGGED_IN = "login"
    LOGGED_OUT = "logout"
    PASSWORD_CHANGED = "password.changed"  # noqa: S105 - the name of an event
    PASSWORD_RESET = "password.reset"  # noqa: S105 - the name of an event
    EMAIL_CHANGED = "email.changed"
    ACCOUNT_DELETED = "account.deleted"
    SECOND_FACTOR_ADDED = "factor.added"
    SECOND_FACTOR_REMOVED = "factor.removed"
    TOKEN_CREATED = "token.created"  # noqa: S105 - the name of an event
    TOKEN_REVOKED = "token.revoked"  # noqa: S105 - the name of an event
    ORGANIZATION_CHANGED = "organization.changed"
    ROSTER_FOUNDED = "organization.founded"
    SERVICE_CREATED = "service.created"
    MEMBER_INVITED = "member.invited"
    INVITATION_WITHDRAWN = "member.uninvited"
    MEMBER_JOINED = "member.joined"
    MEMBER_CHANGED = "member.changed"
    MEMBER_REMOVED = "member.removed"
    DATASET_CREATED = "dataset.created"
    DATASET_CHANGED = "dataset.changed"
    DATASET_DELETED = "dataset.deleted"
    DATASET_KEY = "dataset.key"
    DATASET_FORGOT = "dataset.forgot"
    DATASET_LISTED = "dataset.listed"
    DATASET_UNLISTED = "dataset.unlisted"
    ACCESS_ASKED = "access.requested"
    ACCESS_WITHDRAWN = "access.withdrawn"
    ACCESS_DECLINED = "access.declined"
    SCHEMA_CREATED = "schema.created"
    SCHEMA_CHANGED = "schema.changed"
    SCHEMA_DELETED = "schema.deleted"
    KEY_CHANGED = "schema.key"
    RECORDS_STORED = "records.stored"
    RECORDS_CHANGED = "records.changed"
    RECORDS_DELETED = "records.deleted"
    RECORDS_EXPIRED = "records.expired"
    RECORDS_ERASED = "records.erased"
    RECORDS_RESEALED = "records.resealed"
    RECORDS_COMPACTED = "records.compacted"
    INDEX_MERGED = "index.merged"
    RECORDS_READ = "records.read"


def note(user: User, action: Action, organization_id: str, subject: str) -> None:
    """Write an entry; ``subject`` is the path of the resource that the action concerns."""
    insert(
        AuditEntry(
            organization_id=organization_id,
            user=user,
            action=action,
            subject=subject,
            source=source.get(),
            request_id=logs.request_id.get(),
        )
    )


def note_for_all(user: User, action: Action) -> None:
    """Note an action of a user on the account, for each organization of the user."""
    for organization_id in user.memberships.values_list("organization_id", flat=True):
        note(user, action, organization_id, user.url)


def note_once(user: User, action: Action, organization_id: str, subject: str) -> None:
    """Note an action, but not again within a minute by this process; see :func:`note`."""
    name = f"audit:{user.pk}:{action}:{subject}"
    if cache.add(name, True, _ONCE_IN):
        try:
            note(user, action, organization_id, subject)
        except BaseException:
            cache.delete(name)  # no entry was written, so the next action must be noted
            raise


def drop_old() -> None:
    AuditEntry.objects.filter(created__lt=certain_now() - KEPT).delete()
