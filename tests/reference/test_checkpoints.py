"""Checkpoints: the package makes and takes those of the vectors, the reference the package's."""

from __future__ import annotations

from typing import Any

import pytest

from encrypted_records.crypto.keys import DatasetKey, RootKey
from encrypted_records.errors import CheckpointBroken
from encrypted_records.index.log import checkpoint as taking
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.order import LogMembership
from encrypted_records.index.roster.access import OpenedGrant
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import wire
from encrypted_records.model.records import Commit, LogEntry, ManifestDelta
from encrypted_records.model.roster import RosterEntry
from encrypted_records.model.wire import Checkpoint
from encrypted_records.proxy.schemas.state import SharedKeys
from tests.reference import Refused
from tests.reference import checkpoint as ref
from tests.reference.identity import schema
from tests.reference.loading import entry_of, vectors

FOUND = vectors("checkpoints.json")
ORGANIZATION, SCHEMA, DATASET, ADA = (
    bytes.fromhex(FOUND[name]) for name in ("organization", "schema", "dataset", "member")
)
KEYS = [bytes.fromhex(key) for key in FOUND["keys"]]
ENTRIES = [entry_of(entry) for entry in FOUND["entries"]]
LOG = [
    tuple(bytes.fromhex(one[name]) for name in ("body", "mac", "signature")) for one in FOUND["log"]
]

Case = dict[str, Any]


def checkpoint_of(case: Case) -> Checkpoint:
    return Checkpoint(*(bytes.fromhex(case[name]) for name in ("body", "mac", "signature")))


def new_ledger() -> Ledger:
    roster = Roster(ORGANIZATION, (RosterEntry(*entry) for entry in ENTRIES))
    keys = {
        epoch: DatasetKey(key, organization=ORGANIZATION, dataset=DATASET, epoch=epoch)
        for epoch, key in enumerate(KEYS, 1)
    }
    opened = OpenedGrant(DATASET, 2, roster.number, ADA, keys, {})
    identity = RootKey(bytes.fromhex(FOUND["root"])).identity(ORGANIZATION, ADA, FOUND["kv"])
    shared = SharedKeys(ORGANIZATION, SCHEMA, roster, opened)
    return Ledger(shared, bytes(16), LogMembership(roster, ADA, identity))


def extend(ledger: Ledger, version: int) -> None:
    new = [LogEntry(at, Commit(*one)) for at, one in enumerate(LOG[:version], 1)]
    ledger.extend(ManifestDelta(SCHEMA, version, None, bytes(32), new[ledger.version :], []))


def read_by_reference(one: Checkpoint) -> list[Any]:
    keys = schema(KEYS[-1], ORGANIZATION, SCHEMA, len(KEYS))
    return ref.read(ENTRIES, keys, FOUND["now"], (one.body, one.mac, one.signature))


@pytest.mark.parametrize("case", FOUND["good"])
def test_a_checkpoint_is_made_and_taken_as_specified(case: Case) -> None:
    given, ledger = checkpoint_of(case), new_ledger()
    version = wire.decode_checkpoint_body(given).version
    extend(ledger, version)
    assert taking.make(ledger, ledger.state(), FOUND["requests_since"]) == given
    taken = taking.take(given, ledger.keys, bytes(16), ledger.membership, FOUND["now"])
    assert taken.head == ledger.head
    extend(taken, len(LOG))
    extend(ledger, len(LOG))
    taking.require_equal(taken, ledger.state())


@pytest.mark.parametrize("case", FOUND["bad"], ids=lambda case: str(case["why"]))
def test_a_checkpoint_that_does_not_count_is_refused(case: Case) -> None:
    ledger = new_ledger()
    assert case["error"] == "checkpoint_broken"
    with pytest.raises(CheckpointBroken):
        taking.take(checkpoint_of(case), ledger.keys, bytes(16), ledger.membership, FOUND["now"])
    with pytest.raises(Refused):
        read_by_reference(checkpoint_of(case))


def test_the_reference_takes_what_the_package_makes() -> None:
    ledger = new_ledger()
    extend(ledger, len(LOG))
    made = taking.make(ledger, ledger.state(), 0)
    assert read_by_reference(made)[13] == b"".join(sorted(ledger._requests))
