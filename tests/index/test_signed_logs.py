"""A log of an organization with a roster: whose commits count, and which lies are noticed.

The API is as dishonest as it can be here: it has no key, and hands out what anybody gave it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest

from encrypted_records.errors import ErsError, LogBroken
from encrypted_records.index.log import ledger_state
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.order import LogMembership
from encrypted_records.index.roster.access import OpenedGrant
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import roster as form
from encrypted_records.model import wire
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.ids import new_id
from encrypted_records.model.records import Commit, LogEntry, ManifestDelta
from encrypted_records.proxy.schemas.state import SharedKeys
from tests.index.rosters import ORGANIZATION, Person, Team, reader, uid, writer

DEFINITION = parse_definition(
    '{"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}}'
)
OTHER = parse_definition(
    '{"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}}'
)


@dataclass
class Place:
    """One schema, its roster, and its log as an API hands it out."""

    team: Team = field(default_factory=Team)
    log: list[LogEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.team.dataset("people")
        stated = form.Placement(uid("adults"), uid("people"), "adults", "Adults", DEFINITION.digest)
        self.team.accept(self.team.ada, [stated])

    def keys(self, roster: Roster) -> SharedKeys:
        """Everybody's who was let in, up to the newest epoch: also of who only reads."""
        held = self.team.keys[uid("people")]
        opened = OpenedGrant(uid("people"), max(held), 1, self.team.ada.id, held, {})
        return SharedKeys(ORGANIZATION, uid("adults"), roster, opened)

    def ledger(self, person: Person, roster: Roster | None = None) -> Ledger:
        known = roster or self.team.roster
        membership = LogMembership(known, person.id, person.identity)
        return Ledger(self.keys(known), new_id(), membership)

    def read(self, person: Person | None = None) -> Ledger:
        """The log as a proxy verifies it that has just read the roster."""
        ledger = self.ledger(person or self.team.ada)
        extend(ledger, self.log)
        return ledger

    def draft(self, person: Person, known: Roster | None = None, **changes: object) -> Commit:
        """What somebody makes of the log, by the roster as it is, or was."""
        ledger = self.ledger(person, known)
        honest = self.ledger(self.team.ada)
        extend(honest, self.log)
        ledger._digests = list(honest._digests)
        ledger.history = honest.history
        upload = ledger.draft(DEFINITION)
        body = msgspec.structs.replace(wire.decode_commit_body(upload.commit), **changes)
        return ledger._signing.sign(body, ledger.keys.of(body.key_version))

    def add(self, commit: Commit) -> None:
        self.log.append(LogEntry(len(self.log) + 1, commit))

    def refusal(self, person: Person | None = None) -> str:
        """The code of the error that a reader gets, who then is at the last good commit."""
        ledger = self.ledger(person or self.team.ada)
        with pytest.raises(ErsError) as refused:
            extend(ledger, self.log)
        assert ledger.version == len(self.log) - 1
        return refused.value.reason

    def end(self, version: int | None = None) -> form.End:
        at = len(self.log) if version is None else version
        digest = self.read().digest_at(at)
        assert digest is not None
        return form.End(uid("adults"), at, digest)


def extend(ledger: Ledger, log: list[LogEntry]) -> None:
    new = log[ledger.version :]
    digest = DEFINITION.digest
    ledger.extend(ManifestDelta(uid("adults"), len(log), bytes(8), digest, new, []))


@pytest.fixture
def place() -> Place:
    return Place()


def test_commits_of_owners_and_writers_count(place: Place) -> None:
    grace = place.team.join("grace", writer("people"))
    alan = place.team.join("alan", writer("people", "adults"))
    for person in (place.team.ada, grace, alan):
        place.add(place.draft(person))
    assert place.read(place.team.join("mary", reader("people"))).version == 3


def test_they_count_still_when_their_makers_may_not_write_any_more(place: Place) -> None:
    grace = place.team.join("grace", writer("people"))
    place.add(place.draft(grace))
    place.team.accept(place.team.ada, form.Remove(grace.id))
    assert place.read().version == 1


def test_a_readers_commit_is_refused(place: Place) -> None:
    grace = place.team.join("grace", reader("people"))
    place.add(place.draft(grace))
    assert place.refusal() == "log_broken"


def test_a_strangers_commit_is_refused(place: Place) -> None:
    place.add(place.draft(place.team.person("mallory")))
    assert place.refusal() == "log_broken"


def test_a_commit_without_a_signature_or_with_anothers_is_refused(place: Place) -> None:
    grace = place.team.join("grace", writer("people"))
    commit = place.draft(grace)
    message = wire.commit_digest(commit)
    for signature in (
        b"",
        bytes(64),
        place.team.ada.identity.sign("commit", message),
        grace.identity.sign("checkpoint", message),
    ):
        place.log = []
        place.add(msgspec.structs.replace(commit, signature=signature))
        assert place.refusal() == "log_broken"


def test_a_proxys_own_commit_counts_as_it_was_signed_and_in_no_other_form(place: Place) -> None:
    """What comes back as it was made is not verified again; of anything else the signature is."""
    grace = place.team.join("grace", writer("people"))
    ledger = place.ledger(grace)
    commit = ledger.draft(DEFINITION).commit
    other = place.draft(grace)
    for altered in (
        msgspec.structs.replace(commit, signature=bytes(64)),
        msgspec.structs.replace(commit, signature=other.signature),
        msgspec.structs.replace(other, signature=commit.signature),
    ):
        with pytest.raises(LogBroken):
            extend(ledger, [LogEntry(1, altered)])
        assert ledger.version == 0
    extend(ledger, [LogEntry(1, commit)])
    assert ledger.version == 1


def test_a_commit_in_anothers_name_is_refused(place: Place) -> None:
    grace = place.team.join("grace", writer("people"))
    place.add(place.draft(grace, member=place.team.ada.id))
    assert place.refusal() == "log_broken"


def test_whoever_was_removed_adds_nothing_by_naming_the_present_roster(place: Place) -> None:
    grace = place.team.join("grace", writer("people"))
    place.team.accept(place.team.ada, form.Remove(grace.id))
    place.add(place.draft(grace))
    assert place.refusal() == "log_broken"


@pytest.mark.parametrize("stored", [0, 1, 2])
def test_a_backdated_commit_of_a_removed_writer_is_refused(place: Place, stored: int) -> None:
    """Also into a log that was empty when the next epoch began, which says so."""
    team = place.team
    grace = team.join("grace", writer("people"))
    for _ in range(stored):
        place.add(place.draft(team.ada))
    before = team.roster.copy()
    held = dict(team.keys[uid("people")])
    team.accept(team.ada, form.Remove(grace.id))
    team.dataset("people", 2, place.end())
    commit = place.draft(grace, before, key_version=1, key_id=held[1].schema(uid("adults")).id)
    place.add(commit)
    assert place.refusal() == "log_broken"


def test_the_next_commit_ends_an_epoch_that_no_entry_ended(place: Place) -> None:
    team = place.team
    grace = team.join("grace", writer("people"))
    before, old = team.roster.copy(), place.keys(team.roster).of(1).id
    place.add(place.draft(team.ada))
    team.accept(team.ada, form.Remove(grace.id))
    team.dataset("people", 2)
    place.add(place.draft(team.ada))
    assert place.read().version == 2
    place.add(place.draft(grace, before, key_version=1, key_id=old))
    assert place.refusal() == "log_broken"


def test_a_commit_of_an_epoch_that_its_roster_does_not_have_is_refused(place: Place) -> None:
    team = place.team
    before = team.roster.copy()
    team.dataset("people", 2)
    keys = place.keys(team.roster)
    place.add(place.draft(team.ada, before, key_version=2, key_id=keys.of(2).id))
    assert place.refusal() == "log_broken"
    place.log = []
    place.add(place.draft(team.ada, key_version=1, key_id=keys.of(1).id))
    assert place.refusal() == "log_broken"


def test_the_roster_that_commits_name_never_becomes_older(place: Place) -> None:
    team = place.team
    before = team.roster.copy()
    team.join("grace", writer("people"))
    place.add(place.draft(team.ada))
    place.add(place.draft(team.ada, before))
    assert place.refusal() == "log_broken"


def test_a_commit_of_another_roster_is_refused(place: Place) -> None:
    other = Place(Team(keyring=place.team.ada.keyring))
    other.team.keys = place.team.keys
    place.add(place.draft(place.team.ada, roster=place.team.roster.number + 1))
    assert place.refusal() == "log_broken"
    place.log = []
    place.add(place.draft(place.team.ada, roster_digest=bytes(32)))
    assert place.refusal() == "log_broken"


def test_another_definition_than_was_signed_is_refused(place: Place) -> None:
    swapped = place.draft(place.team.ada, definition=OTHER.digest, definition_text=OTHER.canonical)
    place.add(swapped)
    assert place.refusal() == "log_broken"


def test_a_schema_that_nobody_placed_has_no_commits(place: Place) -> None:
    team = Team()
    team.dataset("people")
    team.keys = {**team.keys, **place.team.keys}
    apart = Place.__new__(Place)
    apart.team, apart.log = team, []
    apart.add(apart.draft(team.ada))
    assert apart.refusal() == "log_broken"


def test_where_epochs_began_is_held_against_a_log_that_was_verified_before(place: Place) -> None:
    team = place.team
    for _ in range(3):
        place.add(place.draft(team.ada))
    ledger = place.read()
    team.dataset("people", 2, place.end(3))
    ledger.check_ends(team.roster.number)


def test_an_end_that_comes_after_its_epoch_stops_what_a_removed_writer_added_meanwhile(
    place: Place,
) -> None:
    team = place.team
    grace = team.join("grace", writer("people"))
    for _ in range(3):
        place.add(place.draft(team.ada))
    honest, before = list(place.log), team.roster.copy()
    old = place.keys(team.roster).of(1).id
    team.accept(team.ada, form.Remove(grace.id))
    key = team.dataset("people", 2)
    place.add(place.draft(grace, before, key_version=1, key_id=old))
    taken = place.read()
    assert taken.version == 4
    end = place.end(3)
    later = form.DatasetName(uid("people"), "people", "People", 2, key.commitment, [end])
    team.accept(team.ada, later)
    with pytest.raises(ErsError) as refused:
        taken.check_ends()
    assert refused.value.reason == "log_broken"
    assert place.refusal() == "log_broken"

    place.log[:] = honest
    place.add(place.draft(team.ada))
    ledger = place.read()
    assert ledger.version == 4
    for epoch, version in ((1, 0), (2, 3), (3, 4)):
        assert ledger.head_before(epoch).version == version
    assert ledger.head_before(2).digest == end.digest


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_verified_log_that_went_on_under_an_ended_key_or_stood_elsewhere_is_refused(
    place: Place, elsewhere: bool
) -> None:
    team = place.team
    for _ in range(3):
        place.add(place.draft(team.ada))
    ledger = place.read()
    end = form.End(uid("adults"), 3, bytes(32)) if elsewhere else place.end(2)
    team.dataset("people", 2, end)
    with pytest.raises(ErsError) as refused:
        ledger.check_ends()
    assert refused.value.reason == "log_broken"


def test_a_log_that_ends_before_its_epoch_did_is_noticed(place: Place) -> None:
    team = place.team
    for _ in range(2):
        place.add(place.draft(team.ada))
    shorter = place.ledger(team.ada)
    extend(shorter, place.log[:1])
    team.dataset("people", 2, place.end(2))
    shorter.check_ends()
    with pytest.raises(ErsError) as refused:
        shorter.check_ends(team.roster.number)
    assert refused.value.reason == "log_broken"
    assert place.read().version == 2


def test_an_api_that_hides_the_roster_is_named(place: Place) -> None:
    place.add(place.draft(place.team.ada))
    ledger = Ledger(place.keys(place.team.roster), new_id())
    with pytest.raises(ErsError) as refused:
        extend(ledger, place.log)
    assert refused.value.reason == "roster_missing"


def test_a_kept_log_goes_on_as_one_that_was_read(place: Place) -> None:
    team = place.team
    place.add(place.draft(team.ada))
    team.dataset("people", 2, place.end())
    place.add(place.draft(team.ada))
    read = place.read()
    kept = ledger_state.decode(read.state().encode())
    membership = LogMembership(team.roster, team.ada.id, team.ada.identity)
    restored = Ledger.restore(place.keys(team.roster), new_id(), kept, membership)
    assert (restored.head, restored.tails.id) == (read.head, read.tails.id)
    place.add(place.draft(team.ada))
    extend(restored, place.log)
    assert restored.version == 3
    team.dataset("people", 3, form.End(uid("adults"), 3, bytes(32)))
    with pytest.raises(ErsError) as refused:
        Ledger.restore(place.keys(team.roster), new_id(), restored_state(restored), membership)
    assert refused.value.reason == "log_broken"


def restored_state(ledger: Ledger) -> ledger_state.RestoredState:
    return ledger_state.decode(ledger.state().encode())
