"""Which entries of a roster a job, or an API token, may hand in: those that a first record needs.

They are signed by a member all the same. What gives somebody a right, or takes it, comes from
somebody who has logged in.
"""

from __future__ import annotations

from collections.abc import Sequence

from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.model.roster import RosterEntry
from encrypted_records.server import permissions
from encrypted_records.server.accounts.api_tokens import limited
from encrypted_records.server.accounts.models import User
from encrypted_records.server.organizations.roster_tables import DatasetKey


def require(user: User, entries: Sequence[RosterEntry]) -> None:
    """
    Raises:
        NotAllowed: ``token_limited``; an entry does more than found the organization, begin the
            first keys of datasets or name them, and place schemas, within what the token reaches.
        Malformed, Unsupported: something is not of its form.
    """
    named: set[str] = set()
    for entry in entries:
        content = form.read_entry(entry).content
        match content:
            case form.Found():
                continue
            case form.Dataset():
                dataset = ids.to_text(content.dataset)
                present = DatasetKey.objects.filter(dataset=dataset).first()
                if content.epoch != (1 if present is None else present.epoch):
                    raise _beyond()
                named.add(dataset)
            case list():
                named |= {ids.to_text(one.dataset) for one in content}
            case _:
                raise _beyond()
    reached = permissions.datasets(user).filter(pk__in=named).values_list("pk", flat=True)
    if set(reached) != named:
        raise _beyond()


def _beyond() -> Exception:
    return limited("a job, or an API token, cannot do this", "log in, and do it as yourself")
