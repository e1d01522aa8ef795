"""Drop what is staged and will not be published. What a request with the job's token brings late is
refused then, or is dropped with the rest: nothing of it is left behind the job's end."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from encrypted_records.server import permissions
from encrypted_records.server.accounts import job_tokens
from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.erasure import removing
from encrypted_records.server.records.models import (
    IndexSegment,
    RecordGroup,
    StagedPart,
    Staging,
)

#: A staging to which nothing came for so long is dropped: its job will not go on.
KEPT_FOR = timedelta(days=7)


def end(user: User, job: bytes) -> None:
    """Void a job's token, and drop what is staged under its id; what comes late is refused."""
    with transaction.atomic():
        # First the token: a part that is being stored holds it, and is there to be dropped then.
        job_tokens.revoke(user, job)
        drop(user, job)


def drop(user: User, uid: bytes) -> None:
    """Drop what the user has staged under this id, of any schema."""
    mine = Staging.objects.filter(user=user, uid=uid)
    if user.acting is not None:
        mine = mine.filter(schema__in=permissions.schemas(user).values("pk"))
    with transaction.atomic():
        for staging in mine.select_for_update():
            drop_one(staging)


def drop_copies(schema: Schema) -> None:
    """Drop what is staged of groups that are to stand for others without an index of their own:
    copies of rows of which some may have ended since. Who staged them begins again."""
    parts = StagedPart.objects.filter(staging__schema=schema)
    numbers = set(parts.filter(stands=True).values_list("staging_id", flat=True))
    numbers -= set(parts.exclude(pages="[]").values_list("staging_id", flat=True))
    with transaction.atomic():
        for staging in Staging.objects.filter(pk__in=numbers).order_by("pk").select_for_update():
            drop_one(staging)


def drop_stale_merges(schema: Schema, moment: datetime) -> None:
    """Drop segments that were staged before a moment at which every segment was replaced: no commit
    can publish them any more."""
    stale = Staging.objects.filter(schema=schema, touched__lte=moment)
    with transaction.atomic():
        for staging in stale.exclude(groups__isnull=False).order_by("pk").select_for_update():
            drop_one(staging)


def drop_expired() -> None:
    """Drop stagings to which nothing came for a week."""
    old = Staging.objects.filter(touched__lt=timezone.now() - KEPT_FOR)
    if not old.exists():
        return  # which takes no lock
    with transaction.atomic():
        for staging in old.select_for_update():
            drop_one(staging)


def drop_one(staging: Staging) -> None:
    """Drop a staging whose row is locked."""
    removing.drop_staged(staging.pk)
    StagedPart.objects.filter(staging=staging).delete()
    RecordGroup.objects.filter(staging=staging).delete()
    IndexSegment.objects.filter(staging=staging).delete()
    Staging.objects.filter(pk=staging.pk).delete()
