"""Whatever an API answers, the proxy gives the right answer or an error with a name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from encrypted_records.model import wire
from encrypted_records.model.records import ManifestDelta, Receipt
from tests.proxy.lies import LIES, LIES_ABOUT_DIGESTS, LIES_ABOUT_ONE, Replay, each, on, receipts
from tests.support.front import Asked, Front, Reply, nothing, running_front
from tests.support.proxies import running_proxy
from tests.support.service import Account, Answer, Service, call
from tests.support.store import new_schema

#: What the proxy says of an API that lies, or does not work.
NAMED = {
    "altered",
    "log_broken",
    "does_not_open",
    "key_missing",
    "api_answer",
    "api_failed",
    "api_unreachable",
    "http_error",
}
DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
    },
}


@dataclass
class Place:
    """An account's schema, behind a front, with a proxy of its own."""

    front: Front
    proxy: str
    account: Account
    schema: str
    folder: Path

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        return call(method, self.proxy + path, body, auth=self.account.auth)

    def post(self, path: str, **body: Any) -> Answer:
        return self.call("POST", f"/api/records/{path}/", {"schema": self.schema, **body})

    def ingest(self, rows: list[dict[str, Any]]) -> list[str]:
        answer = self.call(
            "POST",
            "/api/records/ingest/",
            [{"schema": self.schema, "data": row} for row in rows],
        )
        assert answer.status == 201, answer.body
        return [one["id"] for one in answer.json()]


@pytest.fixture(scope="module")
def place(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Four commits: two groups, a changed and a deleted record."""
    folder = tmp_path_factory.mktemp("hostile")
    account = service.new_account()
    schema = new_schema(service, account, DEFINITION)
    with running_front(service.base_url) as front, running_proxy(front.url, folder) as proxy:
        made = Place(front, proxy.url, account, schema, folder)
        ids = made.ingest([{"name": f"name {n}", "n": n} for n in range(4)])
        made.ingest([{"name": f"name {n}", "n": n} for n in range(4, 8)])
        changed = made.call("PATCH", f"/api/records/{ids[1]}/", {"data": {"n": 50}})
        assert changed.status == 200
        assert made.call("DELETE", f"/api/records/{ids[2]}/").status == 204
        yield made


def in_itself(place: Place) -> dict[str, Any]:
    """Whose number is among those of some records of the same schema."""
    some = {"field": "name", "op": "prefix", "value": "name "}
    return {"field": "n", "op": "in", "of": {"schema": place.schema, "field": "n", "where": some}}


QUESTIONS: dict[str, Callable[[Place], Answer]] = {
    "all": lambda place: place.post("search", count=True),
    "some": lambda place: place.post(
        "search", where={"field": "n", "op": "ge", "value": 3}, count=True
    ),
    "sorted": lambda place: place.post("search", order_by=["-name"], limit=3),
    "none": lambda place: place.post("search", where={"field": "n", "op": "eq", "value": 99}),
    "joined": lambda place: place.post("search", where=in_itself(place), count=True),
    "measured": lambda place: place.post("aggregate", measures=[{"op": "sum", "field": "n"}]),
    "columns": lambda place: place.post("columns", fields=["name", "n"]),
    "exported": lambda place: place.post("export", order_by=["n"]),
    "listed": lambda place: place.call(
        "GET", f"/api/records/?schema={place.schema.split('/')[-2]}"
    ),
}


#: Those that show whether rows, columns and lists are right again.
AGAIN = ("sorted", "measured", "listed")


def ask_all(place: Place) -> dict[str, Answer]:
    return {name: question(place) for name, question in QUESTIONS.items()}


def is_right_again(place: Place, truth: dict[str, bytes]) -> bool:
    return all(QUESTIONS[name](place).body == truth[name] for name in AGAIN)


@pytest.fixture(scope="module")
def truth(place: Place) -> dict[str, bytes]:
    answers = ask_all(place)
    assert {answer.status for answer in answers.values()} == {200}
    assert answers["all"].json()["count"] == 7
    assert answers["measured"].json()["measures"][0]["value"] == 0 + 50 + 3 + 4 + 5 + 6 + 7
    return {name: answer.body for name, answer in answers.items()}


def named(answer: Answer) -> bool:
    return answer.status in (422, 502, 504) and answer.json()["code"] in NAMED


def right_or_named(found: dict[str, Answer], truth: dict[str, bytes]) -> None:
    for name, answer in found.items():
        if answer.status == 200:
            assert answer.body == truth[name], name
        else:
            assert named(answer), (name, answer.status, answer.body)


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_an_error_and_never_another_answer(
    place: Place, truth: dict[str, bytes], name: str
) -> None:
    with place.front.telling(LIES[name]):
        right_or_named(ask_all(place), truth)
    assert is_right_again(place, truth)


@contextmanager
def that_has_seen_nothing(place: Place, folder: Path) -> Iterator[Place]:
    """A proxy with the keyring and the newest heads of another, and an empty memory."""
    shutil.copytree(place.folder / "proxy", folder / "data" / "proxy")
    with running_proxy(place.front.url, folder / "data") as proxy:
        yield Place(place.front, proxy.url, place.account, place.schema, folder)


@pytest.mark.parametrize("name", LIES)
def test_a_proxy_that_has_seen_nothing_is_told_no_lie_either(
    place: Place, truth: dict[str, bytes], name: str, tmp_path: Path
) -> None:
    """Lies about rows and pages do not reach a proxy that keeps them."""
    told = 0

    def lie(asked: Asked, reply: Reply) -> Reply | None:
        nonlocal told
        instead = LIES[name](asked, reply)
        told += instead is not reply
        return instead

    with that_has_seen_nothing(place, tmp_path) as fresh:
        with place.front.telling(lie):
            right_or_named(ask_all(fresh), truth)
        assert told
        assert is_right_again(fresh, truth)


def test_rows_of_an_earlier_answer_are_not_passed_off_as_later_ones(
    place: Place, truth: dict[str, bytes], tmp_path: Path
) -> None:
    replay = Replay(("rows",))
    with that_has_seen_nothing(place, tmp_path) as fresh:
        with place.front.telling(replay):
            assert QUESTIONS["all"](fresh).body == truth["all"]
        (later,) = place.ingest([{"name": "later", "n": 9}])
        with place.front.telling(replay):
            assert named(QUESTIONS["all"](fresh))
        assert QUESTIONS["all"](fresh).json()["count"] == 8
    assert place.call("DELETE", f"/api/records/{later}/").status == 204


@pytest.mark.parametrize("name", LIES_ABOUT_DIGESTS)
def test_nothing_but_the_stored_digests_proves_a_record_that_a_change_takes_over(
    place: Place, name: str
) -> None:
    path = f"/api/records/?schema={place.schema}&limit=1"
    record = place.call("GET", path).json()["results"][0]
    path = f"/api/records/{record['id']}/"
    with place.front.telling(LIES_ABOUT_DIGESTS[name]):
        answer = place.call("PATCH", path, {"data": {"n": 98}})
    assert (answer.status, named(answer)) in ((422, True), (502, True)), answer.body
    assert place.call("GET", path).json()["data"] == record["data"]


@pytest.mark.parametrize("name", LIES_ABOUT_ONE)
def test_a_lie_about_one_record_is_an_error(place: Place, name: str) -> None:
    first, other = place.ingest([{"name": "one", "n": 1}, {"name": "two", "n": 2}])
    path = f"/api/records/{first}/"
    with place.front.telling(LIES_ABOUT_ONE[name]):
        # The replayed answer is to the other record, and then to this one's earlier version.
        place.call("GET", f"/api/records/{other}/")
        for method, body in (("GET", None), ("PATCH", {"data": {"n": 9}}), ("DELETE", None)):
            assert named(place.call(method, path, body)), (method, name)
    assert place.call("GET", path).json()["data"] == {"name": "one", "n": 1}
    assert place.call("DELETE", path).status == 204
    assert place.call("DELETE", f"/api/records/{other}/").status == 204


def test_an_old_version_of_a_record_is_not_passed_off_as_the_present_one(place: Place) -> None:
    (identifier,) = place.ingest([{"name": "old", "n": 1}])
    path = f"/api/records/{identifier}/"
    with place.front.telling(Replay(("records",))):
        assert place.call("GET", path).json()["data"] == {"name": "old", "n": 1}
        changed = place.call("PATCH", path, {"data": {"name": "new"}})
        assert changed.status == 200
        assert place.call("GET", path).json()["code"] == "log_broken"
    assert place.call("GET", path).json()["data"] == {"name": "new", "n": 1}
    place.call("DELETE", path)


@pytest.mark.parametrize("members", [{"version": 10**6}, {"version": 1}, {"id": bytes(16)}])
def test_a_receipt_that_lies_ends_in_no_wrong_answer(place: Place, members: Any) -> None:
    before = len(place.post("search").json()["results"])
    with place.front.telling(receipts(**members)):
        stored = place.call(
            "POST",
            "/api/records/ingest/",
            [{"schema": place.schema, "data": {"name": "x", "n": 3}}],
        )
    assert stored.status == 201 or named(stored)
    results = place.post("search").json()["results"]
    assert len(results) == before + 1
    assert place.call("DELETE", f"/api/records/{results[-1]['id']}/").status == 204


@pytest.mark.parametrize(
    ("status", "code"),
    [
        *((409, code) for code in ("log_conflict", "merge_first", "roster_moved")),
        *((400, "invalid_body"), (403, "read_only"), (404, "not_found"), (413, "too_large")),
        (429, "throttled"),
    ],
)
def test_a_change_that_the_api_only_claims_to_have_refused_is_not_made_twice(
    place: Place, status: int, code: str
) -> None:
    def refuse_once(asked: Asked, reply: Reply) -> Reply:
        if asked.path != "/api/commits/" or told:
            return reply
        told.append(asked.path)
        told_body = json.dumps({"code": code, "detail": "x"}).encode()
        return Reply(status, {"Content-Type": "application/problem+json"}, told_body)

    def found() -> list[tuple[str, int]]:
        results = place.post("search", limit=100).json()["results"]
        return sorted((row["id"], row["data"]["n"]) for row in results)

    told: list[str] = []
    before = found()
    record = {"schema": place.schema, "data": {"name": "refused", "n": 60}}
    with place.front.telling(refuse_once):
        stored = place.call("POST", "/api/records/ingest/", [record])
    assert (stored.status, stored.json()["code"]) == (422, "log_broken")
    ((added, _),) = set(found()) - set(before)
    told.clear()
    path = f"/api/records/{added}/"
    with place.front.telling(refuse_once):
        changed = place.call("PATCH", path, {"data": {"n": 61}})
    assert (changed.status, changed.json()["code"]) == (422, "log_broken")
    answer = place.call("GET", path)
    assert (answer.json()["data"]["n"], answer.headers["ETag"]) == (61, '"2"')
    assert place.call("DELETE", path).status == 204
    assert found() == before


def test_of_a_refused_change_nothing_is_known_while_the_api_does_not_show_its_log(
    place: Place,
) -> None:
    def refuse(asked: Asked, reply: Reply) -> Reply:
        headers = {"Content-Type": "application/problem+json"}
        if asked.path == "/api/commits/":
            return Reply(400, headers, b'{"code": "invalid_body", "detail": "x"}')
        return Reply(429, headers, b"{}") if "/manifest/" in asked.path else reply

    record = {"schema": place.schema, "data": {"name": "refused", "n": 60}}
    with place.front.telling(refuse):
        answer = place.call("POST", "/api/records/ingest/", [record])
    assert "it is not known whether the change was stored" in answer.json()["detail"]
    (found,) = place.post("search", where={"field": "n", "op": "eq", "value": 60}).json()["results"]
    assert place.call("DELETE", f"/api/records/{found['id']}/").status == 204


def test_a_commit_that_the_api_only_claims_to_have_stored_is_missed(
    service: Service, tmp_path: Path
) -> None:
    def claim(asked: Asked) -> Reply | None:
        if asked.path != "/api/commits/":
            return None
        bodies = [
            wire.decode_commit_body(upload.commit) for upload in wire.decode_uploads(asked.body)
        ]
        found = [Receipt(body.id, body.schema, body.seen + 1) for body in bodies]
        return Reply(201, {"Content-Type": wire.MEDIA_TYPE}, wire.encode(found))

    account = service.new_account()
    schema = new_schema(service, account, DEFINITION)
    with running_front(service.base_url) as front, running_proxy(front.url, tmp_path) as proxy:
        place = Place(front, proxy.url, account, schema, tmp_path)
        place.ingest([{"name": "a"}])
        front.invent = claim
        place.ingest([{"name": "b"}])
        front.invent = nothing
        for answer in ask_all(place).values():
            assert (answer.status, answer.json()["code"]) == (422, "log_broken")


def test_what_this_proxy_has_not_seen_may_be_hidden_but_the_answer_is_whole(
    place: Place, tmp_path: Path
) -> None:
    """The honest limit: such an answer is that of an earlier version, exactly."""
    before = {name: answer.body for name, answer in ask_all(place).items()}
    known: list[int] = []

    def hide(asked: Asked, reply: Reply) -> Reply:
        """Confirm whatever version the proxy names as the newest."""

        def unmoved(delta: ManifestDelta) -> ManifestDelta:
            known.append(delta.version - len(delta.entries))
            return msgspec.structs.replace(delta, version=known[-1], entries=[])

        return on(("manifest",), each(ManifestDelta, unmoved))(asked, reply) or reply

    shutil.copytree(place.folder / "proxy", tmp_path / "data" / "proxy")
    with running_proxy(place.front.url, tmp_path / "data") as elsewhere:
        other = Place(place.front, elsewhere.url, place.account, place.schema, tmp_path)
        (identifier,) = other.ingest([{"name": "elsewhere", "n": 1}])
        with place.front.telling(hide):
            # These need no rows, so that the manifest alone confirms them.
            for name in ("measured", "none"):
                assert QUESTIONS[name](place).body == before[name]
        assert known
        found = place.post("search", count=True).json()["count"]
        assert found == json.loads(before["all"])["count"] + 1
        assert other.call("DELETE", f"/api/records/{identifier}/").status == 204


def test_lost_answers_are_asked_for_again_and_nothing_is_stored_twice(place: Place) -> None:
    before = place.post("search", count=True).json()["count"]
    lost = {"commits": 2, "rows": 1, "manifest": 1}

    def lose(asked: Asked, reply: Reply) -> Reply | None:
        name = asked.path.partition("?")[0].rstrip("/").rpartition("/")[2]
        if lost.get(name, 0):
            lost[name] -= 1
            return None
        return reply

    with place.front.telling(lose):
        (identifier,) = place.ingest([{"name": "once", "n": 1}])
        assert place.post("search", count=True).json()["count"] == before + 1
        changed = place.call("PATCH", f"/api/records/{identifier}/", {"data": {"n": 2}})
        assert (changed.status, changed.headers["ETag"]) == (200, '"2"')
    assert lost == {"commits": 0, "rows": 0, "manifest": 0}
    assert place.call("DELETE", f"/api/records/{identifier}/").status == 204
    assert place.post("search", count=True).json()["count"] == before


def test_no_request_to_the_api_shows_a_value(place: Place) -> None:
    """Conditions, orders and cursors stay here; the front has seen everything that left."""
    place.front.forget()
    secret = "Zq-secret-name"
    (identifier,) = place.ingest([{"name": secret, "n": 77}])
    where = {"field": "name", "op": "eq", "value": secret}
    page = place.post("search", where=where, order_by=["name"], limit=1, count=True)
    assert page.json()["count"] == 1
    place.post("search", order_by=["-name"], limit=1, cursor=_cursor(place))
    place.post("aggregate", where=where, measures=[{"op": "max", "field": "name"}])
    place.call("PATCH", f"/api/records/{identifier}/", {"data": {"name": secret + "!"}})
    place.call("DELETE", f"/api/records/{identifier}/")
    assert place.front.asked
    for asked in place.front.asked:
        assert secret.encode() not in asked.body
        assert secret not in asked.path


@pytest.mark.parametrize("missing", ["key_version", "first_key_version"])
def test_a_schema_whose_key_has_no_version_is_not_left_out_of_the_keyrings(
    place: Place, missing: str
) -> None:
    place.ingest([{"name": "ada", "n": 1}])

    def without(asked: Asked, reply: Reply) -> Reply:
        if not asked.path.startswith("/api/schemas/?"):
            return reply
        page = json.loads(reply.body)
        for schema in page["results"]:
            schema[missing] = None
        return reply.with_body(json.dumps(page).encode())

    with place.front.telling(without):
        answer = place.call("GET", "/api/keyring/schemas/")
    assert (answer.status, answer.json()["code"]) == (502, "api_answer")


def _cursor(place: Place) -> str:
    cursor: str = place.post("search", order_by=["-name"], limit=1).json()["next_cursor"]
    return cursor
