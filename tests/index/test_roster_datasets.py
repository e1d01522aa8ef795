"""What a roster says of datasets: their keys' epochs, their schemas, and what is due."""

from __future__ import annotations

import msgspec
import pytest

from encrypted_records.errors import BadInput, SchemaUnsigned, TooLarge, Unsupported
from encrypted_records.index.roster import roster
from encrypted_records.index.roster.roster import due_datasets, due_services, holders_of, sign_entry
from encrypted_records.model import roster as form
from encrypted_records.model.roster import Remove
from encrypted_records.rules.roster_judging import Void
from tests.index.rosters import (
    NOW,
    Team,
    again,
    names,
    placement,
    reader,
    two_datasets,
    uid,
    writer,
)

team = pytest.fixture(two_datasets, name="team")
ADULTS_AND_CHILDREN = [uid("adults"), uid("children")]


@pytest.mark.parametrize(
    ("change", "due"),
    [
        (lambda team: Remove(uid("grace")), ["people"]),
        (lambda team: again(team.person("grace"), reader("people")), ["people"]),
        (lambda team: again(team.person("grace"), writer("people", "adults")), ["people"]),
        (lambda team: again(team.person("grace"), writer("people")), []),
        (lambda team: again(team.person("grace"), writer("people"), reader("bills")), []),
        (lambda team: again(team.person("grace"), role=form.OWNER), []),
    ],
    ids=["removed", "demoted", "narrowed", "as before", "widened", "made an owner"],
)
def test_who_loses_a_right_makes_their_datasets_due(
    team: Team, change: object, due: list[str]
) -> None:
    team.join("grace", writer("people"))
    assert callable(change)
    team.accept(team.ada, change(team))
    assert [dataset.dataset for dataset in due_datasets(team.roster)] == [uid(one) for one in due]


def test_other_keys_of_a_member_make_the_datasets_due_and_a_new_epoch_settles_it(
    team: Team,
) -> None:
    grace = team.join("grace", reader("people"))
    grace.keyring = grace.keyring.rotate()
    team.accept(team.ada, grace.standing(team.roster, reader("people")))
    assert [dataset.dataset for dataset in due_datasets(team.roster)] == [uid("people")]
    team.dataset("people", 2, *(form.End(child, 0, bytes(32)) for child in ADULTS_AND_CHILDREN))
    assert due_datasets(team.roster) == []
    held = [(one.name, scope.whole) for one, scope in holders_of(team.roster, uid("people"))]
    assert held == [("ada@example.org", True), ("grace@example.org", True)]


def test_an_owner_who_becomes_a_writer_makes_due_what_is_not_shared_any_more(team: Team) -> None:
    team.join("grace")
    team.accept(team.ada, again(team.person("grace"), role=form.OWNER))
    team.accept(team.ada, again(team.person("grace"), writer("people")))
    assert [dataset.dataset for dataset in due_datasets(team.roster)] == [uid("bills")]


def test_a_share_is_of_a_dataset_and_of_its_own_schemas(team: Team) -> None:
    grace = team.join("grace")
    for share in (reader("no such dataset"), reader("people", "rents"), reader("people", "none")):
        assert team.put(team.ada, again(grace, share)) is Void.SHARES
    assert team.put(team.ada, again(grace, reader("people"), reader("people"))) is Void.SHARES
    twice = reader("people", "adults", "adults")
    assert team.put(team.ada, again(grace, twice)) is Void.SHARES
    owner = again(grace, reader("people"), role=form.OWNER)
    assert team.put(team.ada, owner) is Void.SHARES


def test_services_are_due_when_their_maker_is_no_owner_any_more(team: Team) -> None:
    grace = team.join("grace")
    team.accept(team.ada, again(grace, role=form.OWNER))
    service = team.person("nightly").standing(team.roster, writer("people"))
    team.accept(grace, msgspec.structs.replace(service, type=form.SERVICE))
    assert due_services(team.roster, NOW) == []
    team.accept(team.ada, Remove(grace.id))
    assert names(due_services(team.roster, NOW)) == ["nightly"]


def test_epochs_follow_one_another_and_the_present_one_keeps_its_key(team: Team) -> None:
    key = team.keys[uid("people")][1]
    entry = form.DatasetName(uid("people"), "people", "People", 1, key.commitment, [])
    other = msgspec.structs.replace(entry, commitment=bytes(32))
    assert team.put(team.ada, other) is Void.COMMITMENT
    for epoch in (3, 1024):
        assert team.put(team.ada, msgspec.structs.replace(other, epoch=epoch)) is Void.EPOCH
    team.dataset("people", 2, form.End(uid("adults"), 0, bytes(32)))
    assert team.put(team.ada, entry) is Void.EPOCH
    assert [end.epoch for end in team.roster.ends(uid("adults"))] == [2]
    assert team.roster.ends(uid("children")) == []


def test_a_dataset_is_due_until_its_newest_epoch_has_ended_each_log_that_is_older(
    team: Team,
) -> None:
    def open_schemas() -> set[bytes]:
        found = {one.schema for one in team.roster.open(uid("people"))}
        assert found == {one.schema for due in due_datasets(team.roster) for one in due.open}
        return found

    adults, children = (form.End(child, 3, b"d" * 32) for child in ADULTS_AND_CHILDREN)
    key = team.dataset("people", 2, adults)
    assert open_schemas() == {uid("children")}
    # Whose name was freed is read by nobody; that it was left open is not forgotten.
    team.accept(team.ada, [placement("people", "children", slug="")])
    assert open_schemas() == set()
    team.accept(team.ada, [placement("people", "children"), placement("people", "pets")])
    assert open_schemas() == {uid("children")}

    later = form.DatasetName(uid("people"), "people", "People", 2, key.commitment, [children])
    number = team.roster.number + 1
    team.accept(team.ada, later)
    assert open_schemas() == set()
    assert [(end.number, end.version) for end in team.roster.ends(uid("children"))] == [(number, 3)]
    # Once more is as good as once, and another end is none.
    team.accept(team.ada, msgspec.structs.replace(later, ends=[adults, children]))
    assert [end.number for end in team.roster.ends(uid("children"))] == [number]
    other = form.End(uid("children"), 4, b"d" * 32)
    assert team.put(team.ada, msgspec.structs.replace(later, ends=[other])) is Void.ENDS
    team.dataset("people", 3, other)
    assert open_schemas() == {uid("adults"), uid("pets")}


def test_an_end_that_no_log_can_have_does_not_count(team: Team) -> None:
    def void(*ends: form.End) -> Void | None:
        return team.put(
            team.ada, form.DatasetName(uid("people"), "p", "P", 3, bytes(32), list(ends))
        )

    team.dataset("people", 2, form.End(uid("adults"), 7, b"d" * 32))
    assert void(form.End(uid("rents"), 1, b"d" * 32)) is Void.ENDS
    assert void(form.End(uid("none"), 1, b"d" * 32)) is Void.ENDS
    assert void(form.End(uid("children"), 0, b"d" * 32)) is Void.ENDS
    assert void(form.End(uid("adults"), 6, b"d" * 32)) is Void.ENDS
    assert void(form.End(uid("adults"), 7, b"e" * 32)) is Void.ENDS
    assert void(*[form.End(uid("adults"), 8, b"d" * 32)] * 2) is Void.ENDS
    assert void(form.End(uid("adults"), 7, b"d" * 32)) is None


def test_a_schema_stays_in_its_dataset(team: Team) -> None:
    assert team.put(team.ada, [placement("bills", "adults")]) is Void.PLACE
    assert team.put(team.ada, [placement("people", "pets")] * 2) is Void.PLACE
    assert team.put(team.ada, [placement("no such dataset", "pets")]) is Void.ABSENT
    for half in ({"name": ""}, {"slug": ""}):
        nameless = msgspec.structs.replace(placement("people", "pets"), **half)
        with pytest.raises(BadInput):
            team.put(team.ada, [nameless])


def test_only_a_writer_of_the_whole_dataset_places_schemas_there(team: Team) -> None:
    grace = team.join("grace", writer("people"))
    alan = team.join("alan", writer("people", "adults"))
    team.accept(grace, [placement("people", "pets")])
    assert team.put(grace, [placement("people", "a"), placement("bills", "b")]) is Void.RIGHT
    assert team.put(alan, [placement("people", "adults")]) is Void.RIGHT


def test_a_slug_is_whose_it_was_given_to_last(team: Team) -> None:
    before = team.roster.number
    team.accept(team.ada, [placement("people", "pets", slug="adults")])
    taken = team.roster.schema(uid("adults"))
    assert taken is not None and (taken.slug, taken.name) == ("", "")
    earlier = team.roster.schema(uid("adults"), before)
    assert earlier is not None and earlier.slug == "adults"
    team.accept(team.ada, [placement("people", "pets", slug="")])
    team.accept(team.ada, [placement("people", "adults")])
    placed = team.roster.schema(uid("adults"))
    assert placed is not None and placed.slug == "adults"


def test_two_schemas_may_change_their_slugs_in_one_entry(team: Team) -> None:
    team.accept(
        team.ada,
        [placement("people", "adults", "children"), placement("people", "children", "adults")],
    )
    slugs = {schema.schema: schema.slug for schema in team.roster.schemas(uid("people"))}
    assert slugs == {uid("adults"): "children", uid("children"): "adults"}


def test_what_is_not_signed_is_refused(team: Team) -> None:
    right = placement("people", "adults")
    roster.require_signed(team.roster, right)
    for wrong in (
        placement("people", "created at the API"),
        msgspec.structs.replace(right, name="Other"),
        msgspec.structs.replace(right, slug="other"),
        msgspec.structs.replace(right, dataset=uid("bills")),
        msgspec.structs.replace(right, definition=bytes(32)),
    ):
        with pytest.raises(SchemaUnsigned):
            roster.require_signed(team.roster, wrong)


def test_more_than_an_organization_may_have_does_not_count(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in (("MEMBERS", 1), ("DATASETS", 2), ("SCHEMAS", 3), ("EPOCHS", 1)):
        monkeypatch.setattr(form, f"MAX_{name}", most)
    grace = team.person("grace").standing(team.roster)
    assert team.put(team.ada, grace) is Void.LIMIT
    third = form.DatasetName(uid("third"), "third", "Third", 1, bytes(32), [])
    assert team.put(team.ada, third) is Void.LIMIT
    assert team.put(team.ada, [placement("people", "pets")]) is Void.LIMIT
    assert team.put(team.ada, [placement("people", "adults", "grown")]) is None
    second = form.DatasetName(uid("people"), "people", "People", 2, bytes(32), [])
    assert team.put(team.ada, second) is Void.LIMIT
    with pytest.raises(TooLarge):
        sign_entry(team.roster, team.ada.identity, team.ada.id, NOW, second)
    monkeypatch.setattr(form, "MAX_ENTRIES", team.roster.number)
    with pytest.raises(Unsupported):
        team.put(team.ada, form.Remove(uid("nobody")))


def test_an_entry_is_not_signed_that_is_too_large(team: Team) -> None:
    ends = [form.End(uid(str(at)), 1, bytes(32)) for at in range(6000)]
    content = form.DatasetName(uid("people"), "people", "People", 2, bytes(32), ends)
    with pytest.raises(TooLarge):
        sign_entry(team.roster, team.ada.identity, team.ada.id, NOW, content)
