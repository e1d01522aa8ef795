"""What nearly every ingest sends: one commit of a few new records, by the token of a login.

On PostgreSQL it is two round trips: who asks, the lock, and all that the commit is judged by; and
then all that it stores.
"""

from __future__ import annotations

from encrypted_records.errors import Conflict
from encrypted_records.model import ids
from encrypted_records.model.records import CommitUpload
from encrypted_records.server import login_permissions
from encrypted_records.server.accounts.models import User
from encrypted_records.server.db.fields import as_stored
from encrypted_records.server.db.pipelines import pipelined, shares_ways
from encrypted_records.server.records import checks, commits, facts
from encrypted_records.server.records.checks import Checked
from encrypted_records.server.records.commits import CommitOutcome

#: Who sent a commit, and what became of it: it may have lost a race.
Answered = tuple[User, CommitOutcome | Conflict]


def apply_by_login(login_id: str, shown: bytes, upload: CommitUpload) -> Answered | None:
    """Apply one commit, which need not be small.

    Args:
        login_id: that of its sender.
        shown: the digest of the secret that came with the login's id.

    Returns:
        None where the login may not be used, or its user does not reach or write the schema.

    Raises:
        Malformed, BadInput, StaleDefinition, MergeFirst, NotFound, NotAllowed: as
            :func:`.commits.apply`.
    """
    commit = checks.check(upload)
    schema_id = ids.to_text(commit.body.schema)
    if facts.is_small(commit) and shares_ways():
        return _apply_small(login_id, shown, schema_id, commit)
    found = login_permissions.written_by_login(login_id, shown, schema_id)
    if found is None:
        return None
    user, schema = found
    try:
        return user, commits.apply_reached(user, [(schema, commit)])
    except Conflict as lost:
        return user, lost


def _apply_small(login_id: str, shown: bytes, schema_id: str, commit: Checked) -> Answered | None:
    """Nothing is asked before the lock, which nobody gets who may not write the schema. Shapes are
    checked under it: there are few."""
    user, member = None, commit.body.member
    try:
        with pipelined():
            locking = login_permissions.lock_by_login(login_id, shown, schema_id)
            # Sent behind the lock, so that they see what was committed before it was had.
            asked = facts.ask(member, commit, is_small=True)
            found = locking()
            if found is None:
                return None
            user, schema = found
            if schema.dataset.organization.has_roster and member != as_stored(user.pk):
                return None  # the right that was asked for is another user's
            known = asked.take()
            if known.logged is None:
                commits.require_shapes(schema, commit)
            receipt, is_new = commits.apply_locked(user, schema, commit, known)
    except Conflict as lost:
        if user is None:
            raise
        return user, lost
    return user, CommitOutcome([receipt], is_new)
