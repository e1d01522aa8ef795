"""A team's day by Python: two people, each with a proxy on a data folder of their own, one API."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from encrypted_records import Client, Proof, new_device
from encrypted_records.client.sdk.sync_client import Schema
from encrypted_records.errors import ErsError, NotAllowed, NotFound
from tests.support.proxies import running_proxy
from tests.support.service import Account, Service

DEFINITION = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9999}},
}


def numbers(schema: Schema) -> list[int]:
    return sorted(record["n"] for record in schema.search())


def of(account: Account, url: str) -> Client:
    """Somebody's, whose device the proxy takes in with the keyring that it makes."""
    return Client(url, email=account.email, password=account.password, device=new_device())


def test_a_colleague_is_invited_reads_writes_and_is_removed(
    running: Service, tmp_path: Path
) -> None:
    ada, grace = running.new_account(), running.new_account()
    proof = Proof(password=ada.password)
    with (
        running_proxy(running.base_url, tmp_path / "ada") as hers,
        running_proxy(running.base_url, tmp_path / "grace") as other,
        of(ada, hers.url) as owner,
        of(grace, other.url) as colleague,
    ):
        dataset = owner.create_dataset("Medical")
        patients = dataset.create_schema("Patients", DEFINITION)
        patients.ingest([{"n": 1}, {"n": 2}])
        share = {"dataset": dataset.url, "role": "reader"}
        made = owner.calls.invite(ada.organization, grace.email, [share], proof=proof)
        assert len(made.words.split()) == 12
        assert made.words not in repr(made)
        (waiting,) = colleague.calls.listing("invitations")
        joined = colleague.calls.answer_invitation(waiting["id"], made.words)
        assert joined.invited_by == ada.email
        assert owner.calls.settle(ada.organization).admitted == [grace.email]

        # She reads, and stores nothing.
        seen = colleague.schema("Patients", dataset=dataset.slug)
        assert numbers(seen) == [1, 2]
        with pytest.raises(NotAllowed) as refused:
            seen.ingest([{"n": 3}])
        assert refused.value.reason == "not_writer"
        (person,) = [
            person
            for person in owner.calls.people(ada.organization).people
            if person.name == grace.email
        ]
        assert (person.admitted_by, person.known_by) == (ada.email, "words")

        # A writer: both store and delete at the same time.
        owner.calls.share(dataset.url, person.id, "writer", proof=proof)
        assert numbers(seen) == [1, 2]

        def store(first: int) -> None:
            schema = (patients, seen)[first // 1000]
            for n in range(first, first + 10):
                schema.ingest([{"n": n}, {"n": n + 100}])
                (record,) = schema.search(f"n = {n + 100}")
                record.delete()

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(store, (100, 1000)))
        wanted = [1, 2, *range(100, 110), *range(1000, 1010)]
        assert numbers(patients) == numbers(seen) == wanted

        # A service stores by its string alone.
        written = {"dataset": dataset.url, "role": "writer"}
        service = owner.calls.create_service(ada.organization, "nightly", [written], proof=proof)
        with Client(hers.url, token=service.key) as program:
            program.schema("Patients", dataset=dataset.slug).ingest([{"n": 9}])

        # Removed, she finds nothing any more, and new records are under a key that she never had.
        removed = owner.calls.remove_person(ada.organization, person.id)
        assert removed.rotated == ["Medical"]
        patients.ingest([{"n": 5}])
        with pytest.raises(ErsError) as gone:
            numbers(seen)
        assert isinstance(gone.value, NotFound)
        assert numbers(patients) == sorted([*wanted, 5, 9])
