"""Several people's records are sealed again: by a writer, under the newest key of the dataset."""

from __future__ import annotations

from encrypted_records.model import roster as form
from tests.proxy.sharing.shared import Shared, refused
from tests.proxy.test_reseal import begin, groups, resealed


def test_after_a_new_epoch_everything_is_under_its_key_for_writers_and_readers(
    shared: Shared,
) -> None:
    long = "longer than what the index holds of a text, whatever it is: "
    ada = shared.proxy(shared.team.ada)
    named = ada.ingest([{"n": n, "s": f"{long}{n % 2}"} for n in range(6)])
    grace, reader = (
        shared.proxy(shared.person(form.WRITER)),
        shared.proxy(shared.person(form.READER)),
    )
    assert len(reader.everything()) == len(grace.everything()) == 6
    assert refused(begin(reader)) == (403, "not_writer")
    team = shared.team
    assert team.ada.do(
        lambda one: one.settling.rotate(team.ada.holder, team.organization, team.dataset)
    )
    resealed(grace)
    assert {epoch for _, epoch in groups(ada)} == {2}
    more = ada.ingest([{"n": 7, "s": f"{long}1"}])
    for store in (ada, grace, reader):
        odd = store.found({"field": "s", "op": "eq", "value": f"{long}1"})
        assert odd == [*named[1::2], *more]
    assert {epoch for _, epoch in groups(ada)} == {2}
