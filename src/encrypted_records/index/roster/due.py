"""Pending changes: tasks that owners still have to do, derived from the roster.

Pending changes are not stored but derived from the entries, so that a crash at any point leaves
only more work (docs/SPEC.md, section 15.7).
"""

from __future__ import annotations

from dataclasses import dataclass

from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import roster as form
from encrypted_records.rules.roster_state import Member, RightLoss, SchemaEntry, Scope


@dataclass(frozen=True, slots=True)
class DueDataset:
    """A dataset that needs a new epoch if there are ``losses`` since the newest one began, and
    statements of the heads of the logs of ``open`` schemas.
    """

    dataset: bytes
    epoch: int
    losses: tuple[RightLoss, ...]
    open: tuple[SchemaEntry, ...]


def due_datasets(roster: Roster) -> list[DueDataset]:
    """Datasets in which a member lost a right or was given other keys since the newest epoch began,
    or whose newest epoch has not stated the ends of all logs. A dataset whose name was freed needs
    no new key.
    """
    found = []
    for dataset in roster.datasets():
        losses = roster.losses(dataset.dataset)
        epoch, open_ = roster.epoch(dataset.dataset), roster.open(dataset.dataset)
        if (losses or open_) and epoch is not None and dataset.slug:
            found.append(DueDataset(dataset.dataset, epoch.epoch, tuple(losses), tuple(open_)))
    return found


def due_services(roster: Roster, now: int) -> list[Member]:
    """Services to be removed: they have expired, or who made them is no owner any more and has
    seen their strings.

    Args:
        now: in seconds since 1970.
    """
    owners = {owner.member for owner in roster.owners()}
    return [
        member
        for member in roster.members()
        if member.type == form.SERVICE
        and (member.keyed_by not in owners or (member.expires and now >= member.expires))
    ]


def holders_of(roster: Roster, dataset: bytes) -> list[tuple[Member, Scope]]:
    """Everybody who has to have a grant of a dataset's newest epoch, and for which schemas."""
    scopes = ((member, member.reads(dataset)) for member in roster.members())
    return [(member, scope) for member, scope in scopes if scope]
