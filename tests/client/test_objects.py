"""The clients with objects: what goes in comes out, of any number of rows, whoever waits."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import secrets
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import encrypted_records
from encrypted_records import AsyncClient, Client
from encrypted_records.client import MAX_DIRECT, MAX_DIRECT_BYTES
from encrypted_records.client.limits import PROXY_TIMING, ClientLimits
from encrypted_records.client.messages import Request, Response
from encrypted_records.client.proxy.uploads import LocalFile
from encrypted_records.client.sdk import rows
from encrypted_records.client.sdk.sync_client import Schema
from encrypted_records.client.transport import Transport
from encrypted_records.errors import (
    ApiTimeout,
    BadInput,
    ClientClosed,
    Conflict,
    Gone,
    InvalidRecords,
    InvalidSetting,
    NotAuthenticated,
    NotFound,
    Overloaded,
    PreconditionFailed,
    ProxyUnreachable,
)
from encrypted_records.proxy.http import messages
from tests.support.service import Account, Service

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "height": {"type": "number", "minimum": 0, "maximum": 3, "precision": 2},
    },
    "required": ["name"],
}
PEOPLE = [
    {"name": "Ada", "age": 36, "height": Decimal("1.65")},
    {"name": "Grace", "age": 85},
    {"name": "Alan", "age": 41},
]


#: Small pieces, and no time to wait for the next try.
HASTY = ClientLimits(
    rows_bytes=4096,
    upload_pauses=(0.0, 0.0),
    timing=replace(PROXY_TIMING, pauses=(0.0, 0.0)),
)


@pytest.fixture
def client(running: Service, account: Account) -> Iterator[Client]:
    with Client(
        running.proxy_url, email=account.email, password=account.password, limits=HASTY
    ) as one:
        yield one


@pytest.fixture
def schema(client: Client) -> Schema:
    dataset = client.create_dataset("People", slug=f"people-{secrets.token_hex(4)}")
    return dataset.create_schema("Person", DEFINITION, slug=f"person-{secrets.token_hex(4)}")


def many(count: int) -> Iterator[dict[str, Any]]:
    """A generator: it can be gone through once."""
    return ({"name": f"person {number}", "age": number % 100} for number in range(count))


def test_refused_credentials_are_answered_with_arguments_of_the_client(running: Service) -> None:
    for token, hint in (("no-token", "a valid token"), (None, "an email and a password")):
        with (
            Client(running.proxy_url, token=token) as client,
            pytest.raises(NotAuthenticated) as refused,
        ):
            client.schema("patient")
        assert hint in refused.value.hint
        assert "Basic" not in refused.value.hint
        assert "/api/" not in refused.value.hint


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8080", "", "ftp://127.0.0.1", "http://", "http://127.0.0.1:99999"]
)
def test_an_address_that_leads_to_no_proxy_is_refused_at_once(address: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        Client(address, email="ada@example.org", password="secret")
    assert "http://127.0.0.1:8080" in refused.value.hint


def test_two_credentials_and_a_broken_token_are_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidSetting) as refused:
        Client("http://ada:pass-secret@127.0.0.1:8080", token="another")
    assert "pass-secret" not in f"{refused.value} {refused.value.__notes__}"
    with pytest.raises(InvalidSetting) as refused:
        Client("http://127.0.0.1:8080", token="token-\nsecret")
    assert "secret" not in f"{refused.value} {refused.value.__notes__}"


def test_hints_of_a_client_name_no_header_and_no_parameter_of_http(
    client: Client, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Conflict) as refused:
        schema.delete_matching("age > 0", confirm=3)
    assert refused.value.reason == "confirm_count"
    assert refused.value.hint == "nothing was deleted; confirm this number instead, if it is right"

    async def request(*_: object, **__: object) -> Response:
        raise Overloaded("too many", retry_after=3)

    monkeypatch.setattr(Transport, "request", request)
    with pytest.raises(Overloaded) as busy:
        client.user()
    assert busy.value.hint == "try again in 3 seconds"


def test_one_name_may_be_given_where_several_may(
    client: Client, schema: Schema, tmp_path: Path
) -> None:
    schema.ingest(PEOPLE)
    found = schema.search(order_by="-name", fields="name", limit=1)
    assert [dict(record) for record in found] == [{"name": "Grace"}]
    assert found.to_arrow().column_names == ["name"]
    dataset = client.dataset(str(schema.members["dataset"]))
    token = client.create_token("one", datasets=dataset.slug)
    assert token.datasets == [dataset.url]

    unique = {**DEFINITION, "unique": [["name"]]}
    people = dataset.create_schema("Unique", unique)
    people.ingest(PEOPLE)
    path = tmp_path / "people.csv"
    path.write_text("name,age\nAda,37\n")
    assert people.upload(path, on_conflict="replace", by="name").wait().status == "completed"
    assert people.count("name = 'Ada' and age = 37") == 1

    age = {"type": "integer", "minimum": 0, "maximum": 130}
    less = {**DEFINITION, "properties": {"name": {"type": "string"}, "age": age}}
    assert schema.change(less, drops="height", dry_run=True).possible


def test_the_traceback_of_an_unknown_name_has_the_known_ones(
    client: Client, schema: Schema
) -> None:
    with pytest.raises(NotFound) as unknown:
        client.schema("nobody")
    assert any("hint: there are: " in note for note in unknown.value.__notes__)
    with pytest.raises(Conflict) as taken:
        client.create_dataset("Again")
        client.create_dataset("Again")
    assert any("get_or_create=True" in note for note in taken.value.__notes__)


def test_resources_are_found_by_name_changed_and_deleted(client: Client, schema: Schema) -> None:
    found = client.schema(schema.slug)
    assert (found.url, found.definition) == (schema.url, DEFINITION)
    dataset = client.dataset(found.members["dataset"])
    assert [one.id for one in dataset.schemas()] == [schema.id]
    assert dataset.id in [dataset.id for dataset in client.datasets()]

    found.update(description="whoever we know")
    assert client.schema(found.id).description == found.description == "whoever we know"

    dataset.delete(cascade=True)
    with pytest.raises(NotFound):
        client.schema(schema.slug)


def test_a_schema_takes_another_definition_and_is_sealed_again(schema: Schema) -> None:
    schema.ingest([{"name": "Ada", "age": 36}, {"name": "Bob", "age": 41}])
    properties = {**schema.definition["properties"], "age": {"type": "string"}}
    new = {"type": "object", "properties": properties}
    told = schema.change(new, dry_run=True)
    assert (told.takes, told.possible, told.applied) == ("reseal", True, False)
    assert schema.change(new).applied
    assert schema.definition["properties"]["age"] == {"type": "string"}
    assert [one["name"] for one in schema.search("age = '41'")] == ["Bob"]
    assert schema.reseal().wait().status == "completed"
    lost = {"type": "object", "properties": {"name": properties["name"]}}
    with pytest.raises(Conflict):
        schema.change(lost)
    schema.change(lost, drops=["age"])
    assert [dict(one) for one in schema.search()] == [{"name": "Ada"}, {"name": "Bob"}]


def test_few_rows_are_stored_searched_counted_and_measured(schema: Schema) -> None:
    assert schema.ingest(PEOPLE) == 3
    assert schema.ingest([]) == 0

    older = schema.search("age > 40", order_by=["-age"])
    assert [one["name"] for one in older] == ["Grace", "Alan"]
    assert [one.data for one in schema.search(limit=2)] == PEOPLE[:2]
    assert list(schema.search(limit=0)) == []
    assert (schema.count(), schema.count({"field": "age", "op": "gt", "value": 40})) == (3, 2)
    assert dict(schema.aggregate("max(age)", "count")) == {"max(age)": 85, "count": 3}


def test_the_first_record_and_one_by_its_id_are_found(client: Client, schema: Schema) -> None:
    schema.ingest(PEOPLE)
    oldest = schema.search(order_by=["-age"]).first()
    assert oldest is not None
    assert oldest["name"] == "Grace"
    assert schema.search("age > 100").first() is None
    assert schema.search(limit=0).first() is None
    assert schema.get(oldest.id) == client.record(oldest.id) == oldest
    other = client.create_dataset("Other").create_schema("Other", DEFINITION)
    for place, name in ((other, oldest.id), (schema, other.id)):
        with pytest.raises(NotFound):
            place.get(name)


def test_text_that_is_not_a_record_id_is_refused_with_the_method_that_returns_ids(
    client: Client, schema: Schema
) -> None:
    for get in (schema.get, client.record):
        with pytest.raises(NotFound, match="this is not a record id") as caught:
            get("abc")
        assert caught.value.hint == "schema.search() returns records with their id"


def test_a_record_is_changed_and_deleted(client: Client, schema: Schema) -> None:
    schema.ingest(PEOPLE)
    (ada,) = schema.search("name = 'Ada'")

    ada.update({"age": 37, "height": None})
    assert client.record(ada.id).data == ada.data == {"name": "Ada", "age": 37}
    ada.delete()
    with pytest.raises(NotFound):
        client.record(ada.id)
    assert schema.delete_matching("age > 40", confirm=2) == 2


def test_a_record_that_somebody_else_changed_meanwhile_is_left_alone_on_request(
    client: Client, schema: Schema
) -> None:
    schema.ingest(PEOPLE)
    (found,) = schema.search("name = 'Ada'")
    mine, other = schema.get(found.id), client.record(found.id)
    other.update({"age": 37}, unchanged=True)
    other.update({"age": 38}, unchanged=True)  # it knows its own change
    with pytest.raises(PreconditionFailed):
        mine.update({"age": 99}, unchanged=True)
    for erase in (False, True):
        with pytest.raises(PreconditionFailed):
            mine.delete(erase=erase, unchanged=True)
    with pytest.raises(BadInput) as caught:
        found.update({"age": 99}, unchanged=True)
    assert "schema.get(id)" in caught.value.hint
    assert schema.get(found.id)["age"] == 38
    other.delete(unchanged=True)
    assert schema.count("name = 'Ada'") == 0


def test_any_number_of_rows_goes_in_as_it_is_made_and_none_twice(
    schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, sent = Transport.request, []

    async def request(self: Transport, method: str, path: str, **more: Any) -> Response:
        answer = await real(self, method, path, **more)
        if method == "PATCH":
            sent.append(int(more["headers"]["Upload-Offset"]))
            if len(sent) == 2 or "Upload-Length" in more["headers"]:
                raise ApiTimeout("it arrived, and nobody heard of it")
        return answer

    monkeypatch.setattr(Transport, "request", request)

    assert schema.ingest(many(500)) == 500

    assert len(sent) > 3
    assert sent == sorted(set(sent))
    assert schema.count() == 500
    assert [one["age"] for one in schema.search(order_by=["name"], limit=3)] == [0, 1, 10]


def test_few_rows_are_stored_once_though_the_answer_is_lost(
    schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, sent = Transport.attempt, []

    async def once(self: Transport, asked: Any) -> Response:
        answer = await real(self, asked)
        if asked.path == "/api/records/ingest/":
            sent.append(answer.status)
            if len(sent) < 3:
                raise ApiTimeout("it arrived, and nobody heard of it")
        return answer

    monkeypatch.setattr(Transport, "attempt", once)

    assert schema.ingest(PEOPLE) == 3

    assert sent == [201, 201, 201]
    assert schema.count() == 3


def test_bad_rows_are_named_and_the_good_ones_stored_where_that_is_asked_for(
    schema: Schema,
) -> None:
    bad = [*many(150), {"name": "too old", "age": 131}, {"age": 3}]
    for some in (bad, bad[-3:]):
        with pytest.raises(InvalidRecords) as refused:
            schema.ingest(some)
        assert [flaw.row for flaw in refused.value.flaws] == [len(some) - 1, len(some)]
    with pytest.raises(InvalidRecords) as nan:
        schema.ingest([{"name": "x", "height": float("nan")}])
    assert nan.value.flaws[0].field == "height"
    with pytest.raises(InvalidRecords):
        schema.ingest(["x"])  # type: ignore[list-item]
    assert schema.count() == 0

    assert schema.ingest(bad, skip_invalid=True) == 150
    assert schema.count() == 150


def test_a_file_is_uploaded_and_its_job_waited_for(
    client: Client, schema: Schema, tmp_path: Path
) -> None:
    file = tmp_path / "people.csv"
    file.write_text("name,age\nAda,36\nAlan,41\n")

    job = schema.upload(file)

    assert job.wait(progress=True).status == "completed"
    assert next(iter(client.jobs())).id == job.id
    assert client.job(job.id).status().processed == 2
    assert job.flaws() == ()
    file.write_text("name,age\nAda,360\n")
    with pytest.raises(InvalidRecords):
        schema.upload(file).wait()
    for takes_a_path in (schema.upload, schema.import_file):
        with pytest.raises(TypeError, match=r"Schema\.ingest\(\) stores rows"):
            takes_a_path([{"name": "Ada"}])  # type: ignore[arg-type]


def test_what_is_found_becomes_a_frame(schema: Schema) -> None:
    schema.ingest(PEOPLE)
    found = schema.search(order_by=["age"])

    table = found.to_arrow()
    frame = found.to_pandas()

    assert table.to_pydict() == {
        "name": ["Ada", "Alan", "Grace"],
        "age": [36, 41, 85],
        "height": [Decimal("1.65"), None, None],
    }
    assert [str(kind) for kind in frame.dtypes] == ["string", "Int64", "float64"]
    assert frame["age"].mean() == 54
    assert frame["height"].isna().tolist() == [False, True, True]
    assert list(schema.search(fields=["age"]).to_pandas()) == ["age"]


def test_without_the_library_a_frame_is_refused_by_name(
    schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pandas", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    for ask in (schema.search().to_arrow, schema.search().to_pandas):
        with pytest.raises(InvalidSetting, match="is not installed"):
            ask()


def test_the_asynchronous_client_does_the_same(running: Service, account: Account) -> None:
    async def slowly() -> AsyncIterator[dict[str, Any]]:
        for row in many(150):
            yield row

    async def use(client: AsyncClient) -> None:
        async with client:
            dataset = await client.create_dataset("Async")
            schema = await dataset.create_schema("Person", DEFINITION)
            assert await schema.ingest(slowly()) == 150
            assert await schema.ingest(PEOPLE) == 3
            assert await schema.count() == 153
            found = [one["name"] async for one in schema.search("age > 98", order_by=["name"])]
            assert found == ["person 99"]
            assert len(await schema.search().to_pandas()) == 153

    client = AsyncClient(running.proxy_url, email=account.email, password=account.password)
    asyncio.run(use(client))


def test_what_the_package_does_not_have_it_says() -> None:
    assert encrypted_records.Client is Client
    with pytest.raises(AttributeError):
        _ = encrypted_records.nothing


def test_clients_that_nobody_closes_end_by_themselves_and_say_nothing(
    running: Service, account: Account
) -> None:
    """As in a notebook: one is garbage, the other is there until the program ends, and in a fork
    of it that does not use it."""
    program = """
import gc, os, sys, threading
from encrypted_records import Client

first, second = (Client(sys.argv[1], email=sys.argv[2], password=sys.argv[3]) for _ in "ab")
assert first.user().email == second.user().email == sys.argv[2]
assert threading.active_count() == 3
del first
gc.collect()
assert threading.active_count() == 2
if not (child := os.fork()):
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
assert second.user().email == sys.argv[2]
"""
    given = (running.proxy_url, account.email, account.password)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_fork_uses_a_client_of_its_parent_and_disturbs_no_connection_of_it(
    running: Service, account: Account
) -> None:
    program = """
import gc, os, sys
from encrypted_records import Client

client = Client(sys.argv[1], email=sys.argv[2], password=sys.argv[3])
user = client.user
assert user().email == sys.argv[2]
for _ in range(2):
    if not (child := os.fork()):
        assert user().email == client.user().email == sys.argv[2]
        del client, user
        gc.collect()
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert user().email == sys.argv[2]
"""
    given = (running.proxy_url, account.email, account.password)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_client_that_is_closed_ends_the_calls_of_other_threads(
    running: Service, account: Account, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema.ingest(PEOPLE)
    asked = threading.Event()
    real = Transport.attempt

    async def attempt(self: Transport, request: Request) -> Response:
        asked.set()
        return await real(self, request)

    follower = Client(running.proxy_url, email=account.email, password=account.password)
    with ThreadPoolExecutor(8) as pool:
        # They begin together, and share one loop.
        users = [pool.submit(follower.user) for _ in range(8)]
        assert {user.result().email for user in users} == {account.email}
        followed = follower.changes(schema.slug)
        assert next(followed).current
        monkeypatch.setattr(Transport, "attempt", attempt)
        waiting = pool.submit(next, followed)
        assert asked.wait(60)
        follower.close()
        with pytest.raises(ClientClosed, match="while it waited"):
            waiting.result(60)


def test_a_client_says_that_it_has_ended_with_the_program(
    running: Service, account: Account
) -> None:
    program = """
import atexit, sys
from encrypted_records import Client
from encrypted_records.errors import ClientClosed

def late():
    try:
        client.user()
    except ClientClosed as error:
        print(error.message)
    client.close()

client = Client(sys.argv[1], email=sys.argv[2], password=sys.argv[3])
atexit.register(late)
client.user()
"""
    given = (running.proxy_url, account.email, account.password)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    said = "this client has ended with the program\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_clients_and_their_objects_are_not_pickled(client: Client, schema: Schema) -> None:
    schema.ingest(PEOPLE)
    record = schema.search().first()
    assert record is not None
    for thing in (client, schema, record):
        for copied in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match=r"make a client where it is used"):
                copied(thing)
    assert pickle.loads(pickle.dumps(dict(record))) == record.data


def test_an_asynchronous_client_says_that_it_belongs_to_another_event_loop(
    running: Service, account: Account
) -> None:
    client = AsyncClient(running.proxy_url, email=account.email, password=account.password)
    loop = asyncio.new_event_loop()
    try:
        assert loop.run_until_complete(client.user()).email == account.email
        with pytest.raises(ClientClosed, match="another event loop"):
            asyncio.run(client.user())
        assert loop.run_until_complete(client.user()).email == account.email
        loop.run_until_complete(client.close())
    finally:
        loop.close()


def test_changes_of_a_schema_are_followed_from_a_cursor_on(client: Client, schema: Schema) -> None:
    schema.ingest(PEOPLE)
    (page,) = client.changes(schema.slug, follow=False)
    assert [(one.op, one.data) for one in page.changes] == [("upsert", one) for one in PEOPLE]
    assert page.current
    assert "Ada" not in repr(page.changes[0])
    schema.get(page.changes[1].id).delete()
    following = schema.changes(page.cursor)
    later = next(following)
    assert [(one.op, one.id, one.data) for one in later.changes] == [
        ("delete", page.changes[1].id, None)
    ]
    with pytest.raises(Gone) as refused:
        next(schema.changes("kwEAxBAAAAAAAAAAAAAAAAAAAAAA"))
    assert refused.value.reason == "start_again"


def test_questions_are_repeated_after_a_broken_connection(
    client: Client, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema.ingest(PEOPLE)
    dataset = client.dataset(str(schema.members["dataset"]))
    broken: set[str] = set()
    real = Transport.attempt

    async def attempt(self: Transport, request: Request) -> Response:
        if request.method == "POST" and request.path not in broken:
            broken.add(request.path)
            raise ProxyUnreachable("it broke off")
        return await real(self, request)

    monkeypatch.setattr(Transport, "attempt", attempt)
    assert schema.count() == 3
    assert schema.aggregate("max(age)") == 85
    assert schema.why("age = 1").count == 0
    assert client.calls.explain(schema.url).records == 3
    assert [found.count for found in dataset.search("name = 'Ada'")] == [1]
    assert client.calls.infer(b"name\nAda\n", "text/csv").sampled == 1
    (sealed, *_) = client.calls.sealed_records(schema.url)
    assert [one.data["name"] for one in client.calls.decrypt([sealed])] == ["Ada"]
    assert len(broken) == 7


def test_few_rows_that_exceed_a_request_become_a_job(
    client: Client, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "MAX_DIRECT_BYTES", 300)
    sent: list[str] = []
    real = Transport.request

    async def request(self: Transport, method: str, path: str, **more: Any) -> Response:
        sent.append(path)
        return await real(self, method, path, **more)

    monkeypatch.setattr(Transport, "request", request)
    assert schema.ingest({"name": "x" * 90} for _ in range(2)) == 2
    assert "/api/files/" not in sent
    assert schema.ingest({"name": "x" * 90} for _ in range(8)) == 8
    assert "/api/files/" in sent
    assert schema.count() == 10


def test_the_bytes_of_few_rows_fit_in_a_request_of_the_proxy() -> None:
    reference = "/api/schemas/2JZrj6hSaxLxqvJcVPJkN2/"
    around = len(json.dumps({"schema": reference, "data": {}})) * MAX_DIRECT
    assert MAX_DIRECT_BYTES + around < messages.MAX_BODY_BYTES


def test_rows_whose_source_fails_leave_no_upload(client: Client, schema: Schema) -> None:
    class OwnError(Exception):
        pass

    def failing(error: BaseException) -> Iterator[dict[str, Any]]:
        yield from many(1000)
        raise error

    for error in (OwnError(), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            schema.ingest(failing(error))
    with pytest.raises(InvalidRecords):
        schema.ingest([*many(1000), {"name": b"bytes"}])

    jobs = [job for job in client.calls.jobs() if schema.id in job.schemas]
    assert [job.status for job in jobs] == ["failed"] * 3
    assert schema.count() == 0


def test_a_file_that_fails_while_it_is_sent_leaves_no_upload(
    client: Client, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([None])  # before the upload begins, its ends are digested

    def failing(_: LocalFile) -> None:
        if next(looks, failing) is failing:
            raise InvalidSetting("the disk is gone")

    path = tmp_path / "names.csv"
    path.write_text("name\nAda\n")
    with monkeypatch.context() as patched:
        patched.setattr(LocalFile, "require_unchanged", failing)
        with pytest.raises(InvalidSetting):
            schema.upload(path)

    assert [job.status for job in client.calls.jobs() if schema.id in job.schemas] == ["failed"]
    assert schema.upload(path).wait().status == "completed"
