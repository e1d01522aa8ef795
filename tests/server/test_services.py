"""Services: a token that reaches what the roster says, and ends with it."""

from __future__ import annotations

import base64
import hashlib
import os
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from encrypted_records.model import credentials, ids
from encrypted_records.model import roster as form
from tests.server.api import PASSWORD, Account, Answer, Api, basic
from tests.server.overtaking import overtaken
from tests.server.rosters import Person, Ring, found, share, standing

BAD = (401, "bad_token")
EXPOSED = (401, "service_key_exposed")


@dataclass(frozen=True)
class Made:
    """A service as its owner's proxy makes it."""

    api: Api
    id: str = field(default_factory=lambda: ids.to_text(ids.new_id()))
    token: bytes = field(default_factory=lambda: os.urandom(32))

    @property
    def body(self) -> dict[str, Any]:
        digest = hashlib.sha256(self.token).hexdigest()
        return {"id": self.id, "name": "nightly import", "token_digest": digest}

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        own = {"Authorization": credentials.authorization(self.token)}
        return self.api.call(method, path, body, headers=own | headers)


@pytest.fixture(scope="module")
def ring(api: Api) -> Ring:
    return found(api.new_account())


@pytest.fixture(scope="module")
def dataset(ring: Ring) -> Any:
    made = ring.owner.account.new_dataset()
    ring.begin(made)
    return made


@pytest.fixture
def service(api: Api, ring: Ring) -> Made:
    made = Made(api)
    path = f"{ring.owner.account.organization}services/"
    answer = ring.owner.account.call("POST", path, made.body)
    assert answer.status == 201, answer.body
    assert answer.json() == {
        "id": made.id,
        "name": "nightly import",
        "expires": None,
        "created": answer.json()["created"],
        "last_used": None,
    }
    return made


def admit(ring: Ring, service: Made, shares: list[form.Share], *, expires: int = 0) -> Person:
    """Make a service a member."""
    who = Person(ring.owner.account, known_id=service.id)
    content = standing(
        who, shares, found=ring.found, type=form.SERVICE, name="nightly import", expires=expires
    )
    entry = ring.follow(ring.sign(content))
    ring.add(entry, *(ring.grant({"id": ids.to_text(one.dataset)}, who) for one in shares))
    return who


def met(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.code


def test_a_service_reaches_nothing_until_it_is_in_the_roster(
    ring: Ring, dataset: Any, service: Made
) -> None:
    assert service.call("GET", "/api/users/self/").json()["id"] == service.id
    for path in (ring.path, dataset["url"]):
        assert service.call("GET", path).status == 404
    schema = ring.owner.account.new_schema(dataset=dataset["url"])
    admit(ring, service, [share(dataset, form.WRITER)])
    assert service.call("GET", dataset["url"]).status == 200
    assert service.call("GET", f"{schema['url']}manifest/").status == 200
    own = service.call("GET", f"{ring.owner.account.organization}grants/")
    assert own.status == 200 and len(own.body) > 1000
    assert service.call("DELETE", schema["url"]).status == 403
    assert service.call("POST", ring.path, b"", **{}).status in (400, 415)


def test_a_service_that_is_removed_meanwhile_breaks_no_request(api: Api, service: Made) -> None:
    removed = "DELETE FROM service WHERE user_id = %s"
    call = partial(service.call, "GET", "/api/users/self/")
    assert overtaken(api, removed, ids.from_text(service.id), call).status == 200
    assert met(call()) == BAD


def test_owners_see_when_a_service_was_last_used_to_the_minute(ring: Ring, service: Made) -> None:
    owner = ring.owner.account
    path = f"{owner.organization}services/"

    def last_used() -> str | None:
        listed = owner.call("GET", f"{path}?limit=1000").json()["results"]
        when: str | None = next(one["last_used"] for one in listed if one["id"] == service.id)
        return when

    assert last_used() is None
    earliest = datetime.now(UTC)
    assert service.call("GET", "/api/users/self/").status == 200
    noted = last_used()
    assert noted is not None and earliest <= datetime.fromisoformat(noted) <= datetime.now(UTC)
    for _ in range(3):
        assert service.call("GET", "/api/users/self/").status == 200
    # A minute is longer than this takes; should it be over, the time is later and not lost.
    after = datetime.fromisoformat(last_used() or "")
    assert after == datetime.fromisoformat(noted) or after - earliest > timedelta(minutes=1)
    assert service.call("GET", path).status in (403, 404)


def test_a_service_ends_with_its_standing(
    api: Api, ring: Ring, dataset: Any, service: Made
) -> None:
    who = admit(ring, service, [share(dataset)])
    job = service.call("POST", "/api/jobs/00000000-0000-4000-8000-000000000000/token/")
    token = {"Authorization": f"Job {job.json()['token']}"}
    ring.add(ring.follow(ring.sign(form.Remove(who.uid))))
    assert met(service.call("GET", dataset["url"])) == BAD
    schema = ring.owner.account.new_schema(dataset=dataset["url"])
    refused = api.call("GET", f"{schema['url']}manifest/", headers=token)
    assert met(refused) == (401, "job_revoked")
    path = f"{ring.owner.account.organization}services/"
    again = ring.owner.account.call("POST", path, service.body)
    assert met(again) == (409, "id_taken")


def test_a_service_ends_when_it_expires(api: Api, ring: Ring, dataset: Any) -> None:
    service = Made(api)
    path = f"{ring.owner.account.organization}services/"
    made = service.body | {"expires": "2020-01-01T00:00:00Z"}
    assert ring.owner.account.call("POST", path, made).status == 201
    assert met(service.call("GET", "/api/users/self/")) == BAD
    # What the roster says of it counts.
    admit(ring, service, [share(dataset)], expires=int(time.time()) + 3600)
    assert service.call("GET", dataset["url"]).status == 200
    content = standing(
        Person(ring.owner.account, known_id=service.id),
        [share(dataset)],
        type=form.SERVICE,
        expires=int(time.time()) - 1,
    )
    job = service.call("POST", "/api/jobs/00000000-0000-4000-8000-000000000001/token/")
    token = {"Authorization": f"Job {job.json()['token']}"}
    ring.add(ring.follow(ring.sign(content)))
    assert met(service.call("GET", dataset["url"])) == BAD
    schema = ring.owner.account.new_schema(dataset=dataset["url"])
    refused = api.call("GET", f"{schema['url']}manifest/", headers=token)
    assert met(refused) == (401, "job_revoked")


def test_a_service_string_at_the_api_is_exposed(api: Api, service: Made) -> None:
    text = credentials.ServiceKey(ids.from_text(service.id), service.token).text
    pair = base64.b64encode(f"{text}:".encode()).decode()
    for header in (
        f"Bearer {text}",
        f"bearer  {text}",
        f"Service {text}",
        f"Basic {pair}",
        f"Bearer {text[:20]}",
    ):
        answer = api.call("GET", "/api/users/self/", headers={"Authorization": header})
        assert met(answer) == EXPOSED, header
        assert service.id not in answer.body.decode()


def test_only_its_token_lets_a_service_in(api: Api, service: Made) -> None:
    address = service.call("GET", "/api/users/self/").json()["email"]
    for header in (
        credentials.authorization(os.urandom(32)),
        "Service",
        "Service  ",
        f"Service {'A' * 44}",
        f"Service {base64.b64encode(hashlib.sha256(service.token).digest()).decode()}",
    ):
        answer = api.call("GET", "/api/users/self/", headers={"Authorization": header})
        assert met(answer) == BAD, header
    for name in (service.id, address):
        answer = api.call("GET", "/api/users/self/", headers=basic(name, PASSWORD))
        assert answer.status == 401
    reset = "/api/accounts/send-reset-password-link/"
    assert api.call("POST", reset, {"email": address}).status == 200
    time.sleep(0.5)
    assert not [one for one in (api.data_dir / "mail").glob("*.eml") if address in one.read_text()]


def test_making_a_service_twice_is_making_it_once(
    api: Api, ring: Ring, service: Made, bob: Account
) -> None:
    owner = ring.owner.account
    path = f"{owner.organization}services/"
    assert owner.call("POST", path, service.body).status == 200
    other = Made(api, token=service.token)
    for taken in (
        service.body | {"token_digest": "00" * 32},
        other.body,
        Made(api, id=ring.owner.id).body,
    ):
        assert met(owner.call("POST", path, taken)) == (409, "id_taken")
    assert met(bob.call("POST", f"{bob.organization}services/", service.body)) == (409, "id_taken")
    for wrong, where in (
        ({"id": "x"}, "/id"),
        ({"token_digest": "AB" * 32}, "/token_digest"),
        ({"name": ""}, "/name"),
        ({"expires": "soon"}, "/expires"),
        ({"role": "owner"}, "/role"),
    ):
        answer = owner.call("POST", path, service.body | wrong)
        assert answer.status == 400
        assert list(answer.flaws()) == [where]


def test_nobody_makes_a_member_of_a_service_that_was_not_made_there(
    api: Api, ring: Ring, service: Made
) -> None:
    for known in (ids.to_text(ids.new_id()), ring.owner.id):
        who = Person(ring.owner.account, known_id=known)
        content = standing(who, found=ring.found, type=form.SERVICE)
        assert ring.refuses(content) == (400, "invalid_entry")
    who = Person(ring.owner.account, known_id=service.id)
    as_owner = standing(who, found=ring.found, type=form.SERVICE, role=form.OWNER)
    assert ring.refuses(as_owner) == (400, "invalid_entry")
    assert ring.refuses(standing(who, found=ring.found)) == (400, "invalid_entry")
