"""The answers to what proxies store: commits; for the view and for the short way
(:mod:`.short_way`)."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import HttpResponse

from encrypted_records.model import wire
from encrypted_records.model.records import CommitUpload
from encrypted_records.server.accounts.models import User
from encrypted_records.server.commits import commits


def answer_commits(
    user: User,
    uploads: Sequence[CommitUpload],
    *,
    by_retention: bool = False,
) -> HttpResponse:
    """Apply commits, each to a schema of its own, all or none.

    Args:
        by_retention: as :func:`commits.apply` has it.

    Raises:
        ErsError: as :func:`commits.apply`.
    """
    return answer(commits.apply(user, uploads, by_retention=by_retention))


def answer(outcome: commits.CommitOutcome) -> HttpResponse:
    return HttpResponse(
        wire.encode(outcome.receipts),
        status=201 if outcome.created else 200,
        content_type=wire.MEDIA_TYPE,
    )
