"""Files that were damaged: on every way in they are read alike, or refused by name with nothing
stored."""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

from encrypted_records import Client
from encrypted_records.client.sdk.files import FileReading
from encrypted_records.client.sdk.sync_client import Dataset
from encrypted_records.client.sdk.sync_schemas import Schema
from encrypted_records.errors import BadInput, ReadingQuestion
from tests.cli.command import Ers
from tests.cli.test_bad_files import stored_at
from tests.support.mutated_files import count_of_mutations, mutations
from tests.support.page_visits import logged_in
from tests.support.service import Account, Service, call


def stored_by_python(dataset: Dataset, path: Path) -> Schema | None:
    """The schema of a file, of which what is likely is said, and nothing of what nobody can know.
    None where it is refused."""
    try:
        try:
            return dataset.import_file(path, name="python").schema
        except ReadingQuestion as question:
            found = question.reading
            assert isinstance(found, FileReading)
            said: dict[str, Any] = {member: found.reading[member] for member in found.guessed}
            asked = {field.name: {"type": "text"} for field in found.fields if field.ask}
            said |= {"columns": asked} if asked else {}
            return dataset.import_file(path, name="python", reading=said).schema
    except BadInput as error:
        assert error.message
        return None


def rows_of(schema: Schema) -> list[str]:
    return sorted(repr(sorted(record.data.items())) for record in schema.search())


def test_mutated_files_are_read_alike_or_refused_on_every_way(
    ers: Ers, running: Service, account: Account, tmp_path: Path
) -> None:
    browser = logged_in(running, account)
    url = f"{running.proxy_url}/api/readings/detect/"
    headers = {"Content-Type": "application/octet-stream"}
    refused = stored = 0
    with Client(running.proxy_url, email=account.email, password=account.password) as client:
        for number, body in enumerate(mutations(count_of_mutations(8))):
            path = tmp_path / f"mutated{number}.csv"
            path.write_bytes(body)
            dataset = client.create_dataset(f"Mutated {secrets.token_hex(4)}")
            before = stored_at(running)
            answer = call("POST", url, body, auth=account.auth, headers=headers)
            head = urlsafe_b64encode(body).decode()
            page = browser.visit(
                "/import/", file=path.name, size=str(len(body)), head=head, do="look"
            )
            flags: list[str] = []
            if answer.status == 200:
                found = answer.json()
                for guess in found["guessed"]:
                    flags += [f"--{guess}", str(found["reading"][guess])]
                assert page.status == 200, number
            else:
                assert answer.status in (400, 413), (number, answer.body)
                assert answer.json()["detail"]
                assert page.status == answer.status, number
            said = ers("import", path, "--dataset", dataset.slug, "--name", "ers", "--yes", *flags)
            schema = stored_by_python(dataset, path)
            assert (said.code == 0) is (schema is not None), (number, said.err)
            made = {each.name: each for each in dataset.schemas()}
            if schema is not None:
                stored += 1
                assert rows_of(made["ers"]) == rows_of(schema) != [], number
                continue
            refused += 1
            assert said.code in (2, 5, 6), (number, said.err)
            assert "error" in said.err or "rejected" in said.err, (number, said.err)
            # A schema may be there whose first rows fit, and then one did not: it is empty.
            assert not any(each.count() for each in made.values()), number
            if answer.status != 200:
                assert stored_at(running) == before, number
    assert stored
    assert refused
