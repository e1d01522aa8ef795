"""What owners still have to do, as far as the roster says it.

It is no state of its own but follows from the entries, so that a crash anywhere leaves only work
(docs/SPEC.md, section 15.7).
"""

from __future__ import annotations

from dataclasses import dataclass

from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import roster as form
from encrypted_records.rules.roster.state import Loss, Member, Schema, Scope


@dataclass(frozen=True, slots=True)
class DueDataset:
    """A dataset that needs a new epoch where somebody lost something since the newest one began;
    and where it is ``open``, ends of the logs of these schemas."""

    dataset: bytes
    epoch: int
    losses: tuple[Loss, ...]
    open: tuple[Schema, ...]


def due_datasets(roster: Roster) -> list[DueDataset]:
    """Datasets of which somebody lost a right, or was given other keys, since their newest epoch
    began, or of which that epoch has not ended all logs. One whose name was freed needs no key for
    what comes."""
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
    return [(one, scope) for one, scope in scopes if scope]
