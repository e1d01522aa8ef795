"""Groups that become one while their segment stays: the package says what the vectors say."""

from __future__ import annotations

from typing import Any

import pytest

from encrypted_records.crypto.keys import Keyring, RootKey
from encrypted_records.errors import ErsError
from encrypted_records.index.log import ledger_state
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.model.records import Commit, LogEntry, ManifestDelta
from tests.reference.loading import vectors

LOG = vectors("compactions.json")
SCHEMA = bytes.fromhex(LOG["schema"])
KEYS = Keyring({1: RootKey(bytes.fromhex(LOG["root"]))}).schema(
    bytes.fromhex(LOG["organization"]), SCHEMA
)

Case = dict[str, Any]


def entry(case: Case, version: int) -> LogEntry:
    return LogEntry(version, Commit(bytes.fromhex(case["body"]), bytes.fromhex(case["mac"]), b""))


def extend(ledger: Ledger, *cases: Case) -> None:
    entries = [entry(one, at) for at, one in enumerate(cases, ledger.version + 1)]
    version = ledger.version + len(entries)
    ledger.extend(ManifestDelta(SCHEMA, version, None, bytes(32), entries, []))


def state(ledger: Ledger) -> Case:
    snapshot = ledger.snapshot()
    return {
        "digest": ledger.head.digest.hex(),
        "groups": [one.uid.hex() for one in snapshot.in_order],
        "dead": {uid.hex(): list(rows) for uid, rows in snapshot.dead.items()},
        "segments": {
            segment.uid.hex(): [[uid.hex(), base] for uid, base in snapshot.groups_of(segment)]
            for segment in snapshot.segments
        },
    }


def test_a_ledger_has_the_groups_that_the_vectors_say_also_where_it_was_kept() -> None:
    ledger = Ledger(KEYS, bytes(16))
    for case in LOG["good"]:
        extend(ledger, case)
        expected = {name: case[name] for name in ("digest", "groups", "dead", "segments")}
        assert state(ledger) == expected
        kept = ledger_state.decode(ledger.state().encode())
        ledger = Ledger.restore(KEYS, bytes(16), kept)
        assert state(ledger) == expected


@pytest.mark.parametrize("case", LOG["bad"], ids=lambda case: str(case["why"]))
def test_a_commit_that_does_not_fit_is_refused_and_leaves_no_trace(case: Case) -> None:
    ledger = Ledger(KEYS, bytes(16))
    extend(ledger, *LOG["good"][: case["after"]])
    before = state(ledger)
    with pytest.raises(ErsError) as refused:
        extend(ledger, case)
    assert refused.value.reason == case["error"]
    assert state(ledger) == before
