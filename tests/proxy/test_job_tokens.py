"""A job outlives what happens to its token: an answer that is lost, a database that was restored.
A token that was revoked ends it."""

from __future__ import annotations

import base64
import threading
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from encrypted_records.proxy.jobs.service import JOB_SCHEME
from encrypted_records.proxy.process import Background
from tests.e2e.database import database_of
from tests.support import jobs
from tests.support.eventually import eventually
from tests.support.fixtures import at
from tests.support.front import Asked, Front, Reply, nothing
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import ANSWER_SECONDS, Account, Answer, Service, call
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 10_000}},
}
ROWS = [{"n": n} for n in range(50)]
FAILURE = Reply(500, {"Content-Type": "text/html"}, b"")
TUS = {"Tus-Resumable": "1.0.0"}


@dataclass(frozen=True)
class ByToken(Account):
    """An account whose requests come with an API token."""

    token: str = ""

    @property
    def auth(self) -> str:
        return f"Bearer {self.token}"


def numbers(store: Store) -> list[int]:
    return sorted(int(one["data"]["n"]) for one in store.everything())


def asks_for_token(asked: Asked) -> bool:
    return asked.path.startswith("/api/jobs/") and asked.path.endswith("/token/")


def tus(store: Store, method: str, path: str, body: bytes | None, **headers: str) -> Answer:
    sent = TUS | {name.replace("_", "-"): value for name, value in headers.items()}
    url = f"{store.service.proxy_url}{path}"
    return call(method, url, body, auth=store.account.auth, headers=sent)


def id_of(job: str) -> bytes:
    return uuid.UUID(job.split("/")[-2]).bytes


def held_job(store: Store, front: Front, proxy: Proxy) -> str:
    """A job that waits, as the API takes no part of it until it is let go."""
    front.invent = lambda asked: FAILURE if asked.path.endswith("/staging/") else None
    proxy.services.jobs.runner.waits = (0.05,)
    path = jobs.started(store, jobs.as_json(store, ROWS))
    eventually(lambda: "500" in (proxy.services.progress.why_waiting(id_of(path)) or ""))
    return path


def waits_for_user(proxy: Proxy, path: str) -> bool:
    return "next request" in (proxy.services.progress.why_waiting(id_of(path)) or "")


def stored_state(proxy: Proxy, path: str) -> str:
    job = proxy.services.stores.jobs.get(id_of(path))
    assert job is not None
    return job.state


def let_expire(store: Store, path: str, year: int) -> None:
    with database_of(store.service) as database:
        moment = f"{year}-01-01 00:00:00"
        database.run("UPDATE job_grant SET expires = %s WHERE job = %s", moment, id_of(path))


def change_password(store: Store) -> None:
    new = "another long passphrase"
    sent = {"old_password": store.account.password, "password": new, "password_confirm": new}
    assert store.api("POST", "/api/accounts/change-password/", sent).status == 200


def test_a_job_goes_on_where_the_answer_about_its_token_was_lost_and_the_proxy_ended(
    service: Service, front: Front, tmp_path: Path
) -> None:
    made, folder = new_store(service, DEFINITION), tmp_path / "own"
    taken: list[int] = []

    def lose(asked: Asked, reply: Reply) -> Reply | None:
        if asks_for_token(asked):
            taken.append(reply.status)
            return None
        return reply

    with running_proxy(front.url, folder) as first:
        store = at(made, first)
        data = jobs.as_json(store, ROWS)
        kind = base64.b64encode(b"application/json").decode()
        told = {"Upload_Length": str(len(data)), "Upload_Metadata": f"filetype {kind}"}
        upload = tus(store, "POST", "/api/files/", b"", **told)
        assert upload.status == 201, upload.body
        name = upload.headers["X-Job-Id"]
        part = {"Content_Type": "application/offset+octet-stream", "Upload_Offset": "0"}
        address = f"/api/files/{upload.headers['Location'].rsplit('/', 1)[1]}"
        with front.telling(lose):
            last = tus(store, "PATCH", address, data, **part)

    # The API has done what it was asked for, each time; the proxy does not know.
    assert last.status == 502
    assert taken
    assert set(taken) == {204}
    with running_proxy(front.url, folder, background=Background) as second:
        # Nobody asks this proxy for anything before the job has ended.
        eventually(lambda: stored_state(second, f"/api/jobs/{name}/") in jobs.ENDED)
        store = at(made, second)
        jobs.completed(store, f"/api/jobs/{name}/")
        assert numbers(store) == list(range(50))


def test_a_job_whose_token_the_api_does_not_know_waits_for_the_next_request_of_its_user(
    store: Store, front: Front, proxy: Proxy
) -> None:
    path = held_job(store, front, proxy)
    with database_of(store.service) as database:  # as an older one that was restored
        database.run("DELETE FROM job_grant WHERE job = %s", id_of(path))
    front.invent = nothing
    eventually(lambda: waits_for_user(proxy, path))

    stranger = at(new_store(store.service, DEFINITION), proxy)
    front.forget()
    assert stranger.proxy("GET", "/api/jobs/").status == 200
    assert id_of(path) in proxy.services.jobs.runner.without_token
    assert not any(map(asks_for_token, front.asked))
    # Any request of its user will do.
    shown = store.proxy("GET", f"{path}about/").json()
    assert shown["status"] == "processing"
    assert shown["waits"] is not None
    jobs.completed(store, path)
    assert numbers(store) == list(range(50))


def test_a_request_of_its_user_counts_while_a_job_that_waits_for_it_tries_again(
    store: Store, front: Front, proxy: Proxy
) -> None:
    path = held_job(store, front, proxy)
    with database_of(store.service) as database:
        database.run("DELETE FROM job_grant WHERE job = %s", id_of(path))
    front.invent = nothing
    eventually(lambda: waits_for_user(proxy, path))
    tries, goes_on = threading.Event(), threading.Event()

    def hold(asked: Asked) -> Reply | None:
        if JOB_SCHEME in asked.headers.get("Authorization", ""):
            tries.set()
            assert goes_on.wait(ANSWER_SECONDS)
        return None

    front.invent = hold
    try:
        assert tries.wait(ANSWER_SECONDS)
        front.forget()
        assert store.proxy("GET", f"{path}about/").status == 200
        eventually(lambda: any(map(asks_for_token, front.asked)))
    finally:
        goes_on.set()
    front.invent = nothing
    # Nobody asks this proxy for anything before the job has ended.
    eventually(lambda: stored_state(proxy, path) in jobs.ENDED)
    assert numbers(store) == list(range(50))


def test_a_job_goes_on_by_itself_where_the_api_knows_its_token_again(
    store: Store, front: Front, proxy: Proxy
) -> None:
    path = held_job(store, front, proxy)
    let_expire(store, path, 2020)
    front.invent = nothing
    eventually(lambda: waits_for_user(proxy, path))
    let_expire(store, path, 2099)
    eventually(lambda: stored_state(proxy, path) == "completed")
    assert numbers(store) == list(range(50))


def test_a_change_of_password_ends_a_job_under_way(
    store: Store, front: Front, proxy: Proxy
) -> None:
    path = held_job(store, front, proxy)
    change_password(store)
    front.invent = nothing
    eventually(lambda: stored_state(proxy, path) == "failed")
    failed = proxy.services.stores.jobs.get(id_of(path))
    assert failed is not None
    assert "(job_revoked)" in str(failed.error)


def test_what_an_api_token_began_ends_with_it_and_no_login_revives_it(
    store: Store, front: Front, proxy: Proxy
) -> None:
    store.ingest([{"n": 100}])  # the keyring is made
    token = store.api(
        "POST",
        "/api/tokens/",
        {"name": "nightly", "scope": "write", "password": store.account.password},
    ).json()
    account = store.account
    by_token = ByToken(account.email, account.password, account.organization, token["token"])
    mine = replace(store, account=by_token)
    path = held_job(mine, front, proxy)
    let_expire(store, path, 2020)
    front.invent = nothing
    eventually(lambda: waits_for_user(proxy, path))
    asked = len([one for one in front.asked if asks_for_token(one)])
    # A login may do more than the token: the limits of the job are the token's.
    assert store.proxy("GET", path).json()["status"] == "processing"
    assert len([one for one in front.asked if asks_for_token(one)]) == asked
    assert store.api("DELETE", token["url"]).status == 204
    let_expire(store, path, 2099)
    eventually(lambda: stored_state(proxy, path) == "failed")
    assert "(job_revoked)" in store.proxy("GET", path).json()["error"]
