"""An API that says that one user is another, and a user at a proxy that is another's."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.model import credentials, ids
from encrypted_records.model.credentials import ServiceKey
from tests.proxy.access.people import SECRET_WORD, Person, code_of, taking_for
from tests.support.front import Asked, Front, Reply
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import call

#: Everything that touches a keyring, a job or an upload: method, path, body.
TOUCHING: list[tuple[str, str, Any]] = [
    ("POST", "/api/records/ingest/", [{"schema": "{schema}", "data": {"name": "x"}}]),
    ("POST", "/api/records/search/", {"schema": "{schema}"}),
    ("POST", "/api/records/aggregate/", {"schema": "{schema}", "measures": []}),
    ("POST", "/api/records/explain/", {"schema": "{schema}"}),
    ("POST", "/api/records/export/", {"schema": "{schema}"}),
    ("POST", "/api/records/decrypt/", {}),
    ("GET", "/api/records/?schema={id}", None),
    ("GET", "/api/records/{record}/", None),
    ("PATCH", "/api/records/{record}/", {"name": "y"}),
    ("DELETE", "/api/records/{record}/", None),
    ("POST", "/api/schemas/{id}/merge/", None),
    ("POST", "/api/jobs/upload/", [{"schema": "{schema}", "data": {"name": "x"}}]),
    ("GET", "/api/jobs/", None),
    ("GET", "/api/jobs/{job}/", None),
    ("GET", "/api/jobs/{job}/errors/", None),
    ("DELETE", "/api/jobs/{job}/", None),
    ("GET", "/api/keyring/", None),
    ("GET", "/api/keyring/schemas/", None),
    ("POST", "/api/keyring/lock/", None),
    ("POST", "/api/keyring/backup/", {"proof": {"password": "{password}"}}),
    ("POST", "/api/keyring/backup/file/", {"passphrase": "x", "proof": {"password": "{password}"}}),
    ("POST", "/api/keyring/rotate/", {"proof": {"password": "{password}"}}),
    ("POST", "/api/keyring/passphrase/", {"new": "x", "proof": {"password": "{password}"}}),
    ("POST", "/api/devices/code/", {"proof": {"password": "{password}"}}),
    ("POST", "/api/devices/", {"create": True, "proof": {"password": "{password}"}}),
]


def filled(value: Any, **names: str) -> Any:
    text = json.dumps(value)
    for name, one in names.items():
        text = text.replace("{" + name + "}", one)
    return json.loads(text)


def try_everything(proxy: Proxy, person: Person, victim: Person, record: str, job: str) -> None:
    """Nothing of the victim's comes out, and nothing is done, whatever is asked."""
    for touching in TOUCHING:
        method, path, body = filled(
            touching,
            schema=f"/api/schemas/{victim.schema}/",
            id=victim.schema,
            record=record,
            job=job,
            password=person.account.password,
        )
        answer = person.ask(proxy, method, path, body)
        assert answer.status in (401, 403, 404, 429), (method, path, answer.status, answer.body)
        assert SECRET_WORD.encode() not in answer.body


def test_an_api_that_takes_one_user_for_another_opens_nothing_at_level_device(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, bob = people
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        (record,) = (one["id"] for one in ada.ingest(proxy).json())
        assert bob.ingest(proxy, "Bob's").status == 201
        body = [{"schema": f"/api/schemas/{ada.schema}/", "data": {"name": "by a job"}}]
        job = ada.ask(proxy, "POST", "/api/jobs/upload/", body).json()["job_id"]
        before = sorted(path.name for path in (tmp_path / "proxy" / "keyrings").iterdir())

        with taking_for(front, bob, ada):
            proxy.services.access.forget_everyone()
            for device in (bob.device, None, credentials.generate_device_secret()):
                try_everything(proxy, bob.at(device), ada, record, job)
        # And the other way round: what Ada sends is not sealed under Bob's keys.
        with taking_for(front, ada, bob):
            proxy.services.access.forget_everyone()
            assert code_of(ada.ingest(proxy)) == "device_unknown"
        proxy.services.access.forget_everyone()

        assert sorted(path.name for path in (tmp_path / "proxy" / "keyrings").iterdir()) == before
        assert ada.ingest(proxy).status == 201


def passing_services_for(front: Front, person: Person) -> Callable[[Asked], Reply | None]:
    """An API that takes whatever says that it is a service for a person."""

    def invent(asked: Asked) -> Reply | None:
        if not asked.headers.get("Authorization", "").startswith("Service "):
            return None
        return front.ask(asked, {**asked.headers, "Authorization": person.account.auth})

    return invent


def test_a_services_string_that_somebody_made_up_opens_nothing_of_a_persons(
    front: Front, people: tuple[Person, Person], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, _ = people
    monkeypatch.setattr(front, "invent", passing_services_for(front, ada))
    string = ServiceKey(ids.from_text(ada.user), os.urandom(32)).text
    body = {"schema": f"/api/schemas/{ada.schema}/"}
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        assert ada.ingest(proxy).status == 201
        found = ada.ask(proxy, "POST", "/api/records/search/", body)
        assert SECRET_WORD.encode() in found.body
        front.forget()
        for method, path, sent in (
            ("POST", "/api/records/search/", body),
            ("POST", "/api/records/ingest/", [{**body, "data": {"name": "x"}}]),
            ("GET", "/api/jobs/", None),
            ("GET", "/api/users/self/", None),
        ):
            answer = call(method, proxy.url + path, sent, auth=f"Bearer {string}")
            assert SECRET_WORD.encode() not in answer.body
            assert (answer.status, code_of(answer)) == (401, "bad_token"), path
        assert not front.asked


def test_a_device_of_somebody_elses_makes_no_keyring_for_whom_the_api_says_it_is(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, bob = people  # Bob was never here: a keyring of his would be made
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        assert ada.ingest(proxy).status == 201
        with taking_for(front, ada, bob):
            proxy.services.access.forget_everyone()
            assert code_of(ada.ingest(proxy)) == "device_unknown"
        assert len(list((tmp_path / "proxy" / "keyrings").iterdir())) == 1


def test_a_lone_proxy_is_for_the_user_whose_keyring_was_made_first(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, bob = people
    with running_proxy(front.url, tmp_path, access="auto") as proxy:
        assert ada.at(None).ingest(proxy).status == 201
        for touching in TOUCHING:
            method, path, body = filled(
                touching,
                schema=f"/api/schemas/{bob.schema}/",
                id=bob.schema,
                record=bob.schema,
                job="0",
                password=bob.account.password,
            )
            assert code_of(bob.ask(proxy, method, path, body)) == "another_user", path
        restored: dict[str, object] = {"phrases": [], "proof": None}
        refused = bob.ask(proxy, "POST", "/api/keyring/restore/", restored)
        assert code_of(refused) == "another_user"
        # Forwarded paths touch no key.
        assert bob.ask(proxy, "GET", "/api/datasets/").status == 200
        assert ada.at(None).ingest(proxy).status == 201


def test_a_missing_keyring_is_never_replaced_by_a_new_one(
    front: Front, people: tuple[Person, Person], tmp_path: Path
) -> None:
    ada, bob = people
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        ada.ingest(proxy)
        adas = {"proof": {"password": ada.account.password}}
        (shown,) = ada.ask(proxy, "POST", "/api/keyring/backup/", adas).json()
        assert bob.ingest(proxy).status == 201
        proof = {"proof": {"password": bob.account.password}}
        (bobs,) = bob.ask(proxy, "POST", "/api/keyring/backup/", proof).json()
    (tmp_path / "proxy" / "keyrings" / f"{ada.user}.keyring").unlink()
    with running_proxy(front.url, tmp_path, access="device") as proxy:
        for device in (ada.device, credentials.generate_device_secret()):
            assert ada.at(device).ingest(proxy).status in (401, 422)
        made = ada.ask(proxy, "POST", "/api/keyring/backup/", adas)
        assert code_of(made) == "keyring_damaged"
        # Nobody brings another one in its place whom the API takes for its owner.
        with taking_for(front, bob, ada):
            proxy.services.access.forget_everyone()
            stranger = bob.at(credentials.generate_device_secret())
            body = {"phrases": [bobs["phrase"]], "replace": True}
            assert code_of(stranger.ask(proxy, "POST", "/api/keyring/restore/", body)) == (
                "proof_needed"
            )
        proxy.services.access.forget_everyone()
        body = {"phrases": [shown["phrase"]]}
        restored = ada.at(credentials.generate_device_secret()).ask(
            proxy, "POST", "/api/keyring/restore/", body
        )
        assert restored.status == 201, restored.body
        assert ada.ingest(proxy).status == 201
