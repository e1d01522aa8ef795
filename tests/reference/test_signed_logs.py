"""Signed commits: the package takes and refuses what the vectors say, and the reference its own."""

from __future__ import annotations

from typing import Any

import pytest

from encrypted_records.crypto.keys import DatasetKey, RootKey
from encrypted_records.errors import ErsError
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.order import LogMembership
from encrypted_records.index.roster.access import OpenedGrant
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import wire
from encrypted_records.model.records import Commit, LogEntry, ManifestDelta
from encrypted_records.model.roster import RosterEntry, cut_entry
from encrypted_records.proxy.schemas.state import SharedKeys
from tests.reference.loading import entry_of, vectors
from tests.reference.roster import Entry
from tests.reference.signed_log import follow

LOG = vectors("commits.json")
ORGANIZATION, SCHEMA, DATASET, ADA = (
    bytes.fromhex(LOG[name]) for name in ("organization", "schema", "dataset", "member")
)

Case = dict[str, Any]


def commit_of(case: Case) -> Commit:
    return Commit(*(bytes.fromhex(case[name]) for name in ("body", "mac", "signature")))


def entries() -> list[Entry]:
    listed = LOG["entries"]
    return [entry_of(one) for one in listed]


def new_ledger(*more: Case, names: bool = True) -> Ledger:
    """
    Args:
        more: entries of the roster, by which older keys were forgotten.
        names: whether all of the roster are shown, or those alone that concern the dataset.
    """
    shown = [RosterEntry(*entry) for entry in entries()]
    if not names:
        shown = [cut_entry(one, {DATASET}) for one in shown]
    roster = Roster(ORGANIZATION, shown)
    for one in more:
        roster.append(RosterEntry(*entry_of(one)))
    return ledger_by(roster)


def ledger_by(roster: Roster) -> Ledger:
    assert not roster.voids
    keys = {
        epoch: DatasetKey(key, organization=ORGANIZATION, dataset=DATASET, epoch=epoch)
        for epoch, key in enumerate(map(bytes.fromhex, LOG["keys"]), 1)
        if epoch >= roster.first(DATASET)
    }
    opened = OpenedGrant(DATASET, 2, roster.number, ADA, keys, {})
    identity = RootKey(bytes.fromhex(LOG["root"])).identity(ORGANIZATION, ADA, LOG["kv"])
    shared = SharedKeys(ORGANIZATION, SCHEMA, roster, opened)
    return Ledger(shared, bytes(16), LogMembership(roster, ADA, identity))


def extend(ledger: Ledger, commits: list[Commit]) -> None:
    log = [LogEntry(at, one) for at, one in enumerate(commits, 1)]
    ledger.extend(ManifestDelta(SCHEMA, len(log), None, bytes(32), log, []))


def good(count: int) -> list[Commit]:
    return [commit_of(one) for one in LOG["good"][:count]]


NAMES = pytest.mark.parametrize("names", [True, False], ids=["all names", "its own names"])


@NAMES
def test_signed_commits_count_as_specified(names: bool) -> None:
    ledger = new_ledger(names=names)
    extend(ledger, good(3))
    assert [head.digest.hex() for head in ledger.heads()] == [one["digest"] for one in LOG["good"]]


@NAMES
@pytest.mark.parametrize("case", LOG["bad"], ids=lambda case: str(case["why"]))
def test_a_commit_that_does_not_count_is_refused(case: Case, names: bool) -> None:
    ledger = new_ledger(names=names)
    with pytest.raises(ErsError) as refused:
        extend(ledger, [*good(case["after"]), commit_of(case)])
    assert refused.value.reason == case["error"]
    assert ledger.version == case["after"]


def test_a_log_whose_definition_is_not_shown_is_refused() -> None:
    """Nobody else has signed the first one."""
    roster = Roster(ORGANIZATION, (cut_entry(RosterEntry(*entry), set()) for entry in entries()))
    ledger = ledger_by(roster)
    with pytest.raises(ErsError) as refused:
        extend(ledger, good(3))
    assert refused.value.reason == "roster_withheld"
    assert ledger.version == 0


def test_a_log_is_read_without_the_key_that_was_forgotten() -> None:
    ledger = new_ledger(LOG["forgotten"]["entry"])
    extend(ledger, good(3))
    ledger.check_ends(ledger.membership.number if ledger.membership else 0)
    assert [head.digest.hex() for head in ledger.heads()] == [one["digest"] for one in LOG["good"]]


@pytest.mark.parametrize("case", LOG["forgotten"]["bad"], ids=lambda case: str(case["why"]))
def test_a_log_that_ends_under_a_forgotten_key_is_refused(case: Case) -> None:
    ledger = new_ledger(LOG["forgotten"]["entry"])
    with pytest.raises(ErsError) as refused:
        extend(ledger, [*good(case["after"]), commit_of(case)])
        assert ledger.membership is not None
        ledger.check_ends(ledger.membership.number)
    assert refused.value.reason == case["error"]


def test_an_end_that_comes_later_counts_from_then_on() -> None:
    *before, ending = (RosterEntry(*entry_of(entry)) for entry in LOG["open"]["entries"])
    backdated, last = commit_of(LOG["open"]["bad"]), commit_of(LOG["open"]["good"])
    taken = ledger_by(Roster(ORGANIZATION, before))
    extend(taken, [*good(2), backdated])
    assert taken.membership is not None
    assert taken.membership.roster.append(ending) is None
    with pytest.raises(ErsError) as refused:
        taken.check_ends()
    assert refused.value.reason == LOG["open"]["bad"]["error"]
    with pytest.raises(ErsError) as refused:
        extend(ledger_by(Roster(ORGANIZATION, [*before, ending])), [*good(2), backdated])
    assert refused.value.reason == LOG["open"]["bad"]["error"]
    ledger = ledger_by(Roster(ORGANIZATION, [*before, ending]))
    extend(ledger, [*good(2), last])
    assert ledger.head.digest.hex() == LOG["open"]["good"]["digest"]
    assert ledger.head_before(2).version == 2
    assert ledger.head_before(3) == ledger.head


def test_the_reference_takes_what_the_package_signs() -> None:
    ledger = new_ledger()
    extend(ledger, good(3))
    assert ledger.definition is not None
    made = ledger.draft(ledger.definition).commit
    keys = [bytes.fromhex(key) for key in LOG["keys"]]
    commits = [(one.body, one.mac, one.signature) for one in (*good(3), made)]
    digests = follow(entries(), ORGANIZATION, SCHEMA, keys, commits)
    assert digests[-1] == wire.next_log_digest(ledger.head.digest, made)
