"""The promise, proven from behind: what was stored is in no file, on either side, readable."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import re2

from encrypted_records import Client
from tests.support import jobs
from tests.support.service import Service, call, running_service
from tests.support.store import Store, new_store

MINIMUM = -(2**50)
DEFINITION = {
    "type": "object",
    "properties": {
        "diagnosis_field": {"type": "string"},
        "account": {"type": "integer", "minimum": MINIMUM, "maximum": 2**60},
        "salary": {"type": "number", "minimum": 0, "maximum": 10**12, "precision": 3},
    },
    "required": ["diagnosis_field"],
}


def spellings_of_text(text: str) -> Iterator[bytes]:
    raw = text.encode()
    yield raw
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    yield text.encode("utf-16-le")
    # Base64 of the text at each of the three offsets it can have in a longer one.
    for lead in range(3):
        whole = base64.b64encode(b"\0" * lead + raw)
        yield whole[4 if lead else 0 : -4]


def spellings_of_number(number: int, minimum: int) -> Iterator[bytes]:
    yield str(number).encode()
    for value in (number, number - minimum):
        yield f"{value:x}".encode()
        # Without leading zeros; what is left are seven bytes at least.
        for order in ("big", "little"):
            yield value.to_bytes((value.bit_length() + 7) // 8, order)


class Secrets:
    """Values that occur nowhere by chance, and every form they could leak in."""

    def __init__(self) -> None:
        self.texts = [f"Zq{secrets.token_hex(9)}é{secrets.token_hex(4)}" for _ in range(30)]
        # Eight bytes, and of a salary in thousandths seven: nothing that other bytes are by chance.
        self.numbers = [2**56 + secrets.randbits(56) for _ in range(30)]
        self.salaries = [9 * 10**11 + secrets.randbelow(10**11) for _ in range(30)]

    def rows(self) -> list[dict[str, object]]:
        return [
            {"diagnosis_field": text, "account": number, "salary": salary}
            for text, number, salary in zip(self.texts, self.numbers, self.salaries, strict=True)
        ]

    def spellings(self) -> set[bytes]:
        found: set[bytes] = set()
        for text in self.texts:
            found.update(spellings_of_text(text))
        for number in self.numbers:
            found.update(spellings_of_number(number, MINIMUM))
        for salary in self.salaries:
            found.add(str(salary).encode())
            found.update(spellings_of_number(salary * 1000, 0))
        return found


def use_everything(store: Store, secret: Secrets) -> None:
    """Each way in which a value can pass through the service, errors included."""
    ids = store.ingest(secret.rows())
    text, number = secret.texts[3], secret.numbers[3]
    assert store.found({"field": "diagnosis_field", "op": "eq", "value": text}) == [ids[3]]
    assert store.found({"field": "account", "op": "between", "value": [number, number]}) == [ids[3]]
    assert store.found({"field": "diagnosis_field", "op": "prefix", "value": text[:12]}) == [ids[3]]
    sealed = store.api("GET", f"/api/records/{ids[0]}/").json()
    opened = store.proxy("POST", "/api/records/decrypt/", sealed)
    assert opened.json()["data"]["diagnosis_field"] == secret.texts[0]
    bad_rows = store.send([{"diagnosis_field": secret.numbers[0], "account": secret.texts[0]}])
    assert bad_rows.status == 400
    bad_name = store.send([{secret.texts[1]: 1, "diagnosis_field": "x"}])
    assert bad_name.status == 400
    bad_search = store.ask({"field": "account", "op": "eq", "value": secret.texts[2]})
    assert bad_search.status == 400
    broken = call(
        "POST",
        f"{store.service.proxy_url}/api/records/ingest/",
        f'[{{"data": {{"diagnosis_field": "{secret.texts[2]}"'.encode(),
        auth=store.account.auth,
    )
    assert broken.status == 400
    use_jobs(store, secret)
    import_a_file(store, secret)
    changed = store.proxy("PUT", f"/api/records/{ids[0]}/", {"data": secret.rows()[0]})
    assert changed.status == 200
    ordered = store.search(order_by=["-diagnosis_field", "account"], limit=3)
    store.search(order_by=["-diagnosis_field", "account"], cursor=ordered["next_cursor"])
    refused = store.proxy("POST", f"/api/records/{ids[0]}/", {"data": secret.rows()[0]})
    assert refused.status == 405
    where = {"field": "diagnosis_field", "op": "eq", "value": text}
    unconfirmed = {"schema": store.schema, "where": where}
    assert store.proxy("POST", "/api/records/delete/", unconfirmed).status == 409
    for answer in (bad_rows, bad_search, broken):
        for text in secret.texts:
            assert text.encode() not in answer.body
        for number in secret.numbers:
            assert str(number).encode() not in answer.body


def use_jobs(store: Store, secret: Secrets) -> None:
    """Jobs that complete, fail over bad rows and names, and are still under way at the end."""
    other = store.another_schema(DEFINITION)
    done = jobs.started(other, jobs.as_json(other, secret.rows()))
    assert jobs.completed(other, done)["processed"] == len(secret.rows())
    bad: list[dict[str, object]] = [
        {secret.texts[0]: 1, "diagnosis_field": 7},
        {"account": secret.texts[1]},
    ]
    failed = jobs.started(other, jobs.as_json(other, bad))
    assert jobs.ended(other, failed)["status"] == "failed"
    assert len(jobs.flaws(other, failed)) == 4
    header = f"{secret.texts[2]},{secret.numbers[2]},schema_id:{other.schema_id}\n".encode()
    assert jobs.upload(other, header, "text/csv").json()["code"] == "csv_header"
    jobs.started(other, jobs.as_json(other, secret.rows() * 2000))


def import_a_file(store: Store, secret: Secrets) -> None:
    """As people have it: its values say which definition is proposed, and how it is read."""
    rows = [
        f"{row['diagnosis_field']};{row['account']};{row['salary']};{secret.texts[number % 3]}"
        for number, row in enumerate(secret.rows())
    ]
    path = store.service.data_dir.parent / "people.csv"
    path.write_text("\n".join(["diagnosis_field;account;salary;ward", *rows]))
    account = store.account
    with Client(store.service.proxy_url, email=account.email, password=account.password) as client:
        done = client.create_dataset("Files").import_file(path)
    assert done.stored == len(rows)


def credentials(store: Store) -> set[bytes]:
    """A password, an access token and an API token, each of them used."""
    account, url = store.account, store.service.proxy_url
    pair = {"email": account.email, "password": account.password}
    access = call("POST", f"{url}/api/token/", pair).json()["access"]
    assert call("GET", f"{url}/api/users/self/", auth=f"Bearer {access}").status == 200
    asked = {"name": "nightly", "scope": "write"}
    token = call("POST", f"{url}/api/tokens/", asked, auth=account.auth).json()["token"]
    begun = call(
        "POST",
        f"{url}/api/jobs/upload/?schema={store.schema_id}",
        b"diagnosis_field\nx\n",
        auth=f"Bearer {token}",
        headers={"Content-Type": "text/csv"},
    )
    jobs.completed(store, f"/api/jobs/{begun.json()['job_id']}/")
    basic = account.auth.removeprefix("Basic ")
    # A token's signature is its secret part, as is what follows the kind of an API token.
    signature = access.rpartition(".")[2]
    return {account.password.encode(), basic.encode(), signature.encode(), token[6:].encode()}


def files(*roots: Path) -> list[Path]:
    found = []
    for root in roots:
        found += [root] if root.is_file() else [path for path in root.rglob("*") if path.is_file()]
    return found


def content(path: Path) -> bytes:
    """A running PostgreSQL drops files of its own while they are looked through."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def occurrences(wanted: set[bytes], paths: list[Path]) -> list[tuple[bytes, Path]]:
    """In one pass over each file: there are hundreds of spellings, and a database has hundreds of
    megabytes."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = 256 << 20
    any_of_them = re2.compile(b"|".join(re2.escape(one) for one in wanted), options)
    return [
        (found.group(), path) for path in paths for found in any_of_them.finditer(content(path))
    ]


@pytest.fixture(scope="module")
def used(
    database: str | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Service, Secrets, set[bytes]]]:
    """A service that has been through everything, and has stopped."""
    folder = tmp_path_factory.mktemp("clear") / "data"
    secret = Secrets()
    with running_service(folder, database_url=database) as service:
        store = new_store(service, DEFINITION)
        use_everything(store, secret)
        passwords = credentials(store)
    yield service, secret, passwords


def test_no_value_is_readable_in_any_file_or_log(
    used: tuple[Service, Secrets, set[bytes]], database_folder: Path | None
) -> None:
    service, secret, _ = used
    paths = files(
        service.data_dir, service.log_file, *([database_folder] if database_folder else [])
    )

    # That the search looks in the right places: definitions are stored in the clear.
    assert occurrences({b"diagnosis_field"}, paths)
    assert occurrences(secret.spellings(), paths) == []


def test_no_password_or_token_is_in_any_file_or_log(
    used: tuple[Service, Secrets, set[bytes]], database_folder: Path | None
) -> None:
    service, _, passwords = used
    paths = files(
        service.data_dir, service.log_file, *([database_folder] if database_folder else [])
    )

    assert occurrences(passwords, paths) == []


def test_the_search_for_plaintext_would_find_it(tmp_path: Path) -> None:
    secret = Secrets()
    planted = tmp_path / "database"
    planted.write_bytes(
        b"\0" * 100 + secret.texts[5].encode() + secret.numbers[7].to_bytes(8, "big")
    )

    found = {one for one, _ in occurrences(secret.spellings(), files(tmp_path))}

    assert secret.texts[5].encode() in found
    assert secret.numbers[7].to_bytes(8, "big") in found
