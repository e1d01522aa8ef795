"""The life of a keyring: locked and unlocked, written down, lost, and brought back."""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.fixtures import at
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Account, Answer, Service
from tests.support.store import Store, new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}
NAMES = ["Ada", "Alan", "Grace"]
PASSPHRASE = "seven wet kettles 1815"


def before(service: Service, proxy: Proxy) -> Service:
    """The service with this proxy before it."""
    return replace(service, proxy_url=proxy.url)


def filled(service: Service) -> Store:
    store = new_store(service, DEFINITION)
    store.ingest([{"name": name} for name in NAMES])
    return store


def names(store: Store) -> list[str]:
    return [record["data"]["name"] for record in store.everything()]


def phrase_of(store: Store) -> str:
    answer = store.proxy("POST", "/api/keyring/backup/")
    assert answer.status == 200, answer.body
    assert answer.headers["Cache-Control"] == "no-store"
    (one,) = answer.json()
    assert one["version"] == 1
    phrase: str = one["phrase"]
    return phrase


def restore(store: Store, phrase: str, **members: Any) -> Answer:
    return store.proxy("POST", "/api/keyring/restore/", {"phrases": [phrase], **members})


def refusal(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json()["code"]


def holding(service: Service, folder: Path, *secrets: str) -> list[str]:
    """The files of the API and below ``folder`` in which one of the secrets occurs."""
    files = (path for one in (service.data_dir, folder) for path in one.rglob("*"))
    return [
        path.name
        for path in files
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in secrets)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keyring")


@pytest.fixture(scope="module")
def shared(service: Service, folder: Path) -> Iterator[Service]:
    with running_proxy(service.base_url, folder) as proxy:
        yield before(service, proxy)


def test_a_lost_keyring_comes_back_from_its_phrase_and_leaves_no_trace_of_it(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with running_proxy(service.base_url, tmp_path / "lost") as proxy:
        store = filled(before(service, proxy))
        phrase = phrase_of(store)
        had = store.proxy("GET", "/api/keyring/").json()

    with running_proxy(service.base_url, tmp_path / "new") as proxy:
        store = at(store, proxy)
        assert refusal(store.ask()) == (422, "key_missing")
        assert refusal(store.proxy("GET", "/api/keyring/")) == (404, "no_keyring")

        restored = restore(store, f"  {phrase.upper()}\n")

        assert restored.status == 201, restored.body
        assert restored.json()["fingerprint"] == had["fingerprint"]
        assert restored.json()["backup_confirmed"] is True
        assert names(store) == NAMES
        store.ingest([{"name": "Emmy"}])
        assert names(store) == [*NAMES, "Emmy"]
    four_words = " ".join(phrase.split()[:4])
    assert "POST '/api/keyring/restore/' 201" in caplog.text
    assert four_words not in (caplog.text + service.log).lower()
    assert holding(service, tmp_path, four_words, four_words.upper()) == []


def test_with_a_passphrase_set_later_nothing_opens_without_it_and_it_is_nowhere_on_disk(
    service: Service,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    own, secret = tmp_path / "own", tmp_path / "passphrase"
    with running_proxy(service.base_url, own) as proxy:
        store = filled(before(service, proxy))
        assert store.proxy("GET", "/api/keyring/").json()["wrapping"] == "machine_key"
        assert "anybody who can read this folder can read the records" in caplog.text
    monkeypatch.setenv("ERS_KEYRING_PASSPHRASE", PASSPHRASE)
    with running_proxy(service.base_url, own) as proxy:
        store = at(store, proxy)
        assert names(store) == NAMES
        assert store.proxy("GET", "/api/keyring/").json()["wrapping"] == "passphrase"
    (own / "proxy" / "machine.key").unlink(missing_ok=True)

    for wrong in ("", PASSPHRASE + "!"):
        if wrong:  # a proxy takes it out of its environment
            monkeypatch.setenv("ERS_KEYRING_PASSPHRASE", wrong)
        with running_proxy(service.base_url, own) as proxy:
            store = at(store, proxy)
            for answer in (store.ask(), store.proxy("GET", "/api/keyring/")):
                assert refusal(answer) == (422, "keyring_locked")
                assert "ERS_KEYRING_PASSPHRASE" in answer.json()["hint"]

    monkeypatch.setenv("ERS_KEYRING_PASSPHRASE_FILE", str(secret))
    secret.write_text(PASSPHRASE + "\n")
    with running_proxy(service.base_url, own) as proxy:
        assert names(at(store, proxy)) == NAMES
    secret.unlink()
    assert PASSPHRASE not in caplog.text + service.log
    assert holding(service, tmp_path, PASSPHRASE) == []


def test_a_backup_is_confirmed_with_the_words_and_with_no_others(shared: Service) -> None:
    store, stranger = filled(shared), filled(shared)
    phrase = phrase_of(store)
    shown = store.proxy("GET", "/api/keyring/").json()
    (version,) = shown["versions"]
    assert shown["backup_confirmed"] is False
    assert version["fingerprint"] == shown["fingerprint"]
    assert version["created"] > 1_700_000_000

    for wrong in (phrase_of(stranger), "", "abandon " * 24, phrase.replace(" ", "-", 1)):
        answer = store.proxy("POST", "/api/keyring/backup/confirm/", {"phrase": wrong})
        assert refusal(answer) == (400, "invalid_phrase")
        # A single word may be one of the sentence's own: "that" is on the list of words.
        words = wrong.split()
        told = answer.body.decode()
        assert not any(" ".join(words[at : at + 3]) in told for at in range(len(words) - 2))
    assert store.proxy("GET", "/api/keyring/").json()["backup_confirmed"] is False

    answer = store.proxy("POST", "/api/keyring/backup/confirm/", {"phrase": phrase})
    assert answer.json()["backup_confirmed"] is True
    assert store.proxy("POST", "/api/keyring/backup/").json() == []
    everything = store.proxy("POST", "/api/keyring/backup/", {"all": True}).json()
    assert everything == [{"version": 1, "phrase": phrase}]
    assert store.proxy("GET", "/api/keyring/").json()["backup_confirmed"] is True
    assert stranger.proxy("GET", "/api/keyring/").json()["backup_confirmed"] is False


def test_a_backup_is_tried_without_changing_a_key_and_only_a_whole_one_counts(
    shared: Service, folder: Path
) -> None:
    store, stranger = filled(shared), filled(shared)
    first = phrase_of(store)
    files = sorted((folder / "proxy" / "keyrings").iterdir())
    kept = [file.read_bytes() for file in files]

    def attempt(**backup: Any) -> Answer:
        return store.proxy("POST", "/api/keyring/restore/", {**backup, "dry_run": True})

    def tried() -> Any:
        return store.proxy("GET", "/api/keyring/").json()["restore_tried"]

    assert tried() is None
    for wrong in ([phrase_of(stranger)], [], ["abandon " * 24]):
        assert refusal(attempt(phrases=wrong)) == (400, "invalid_phrase")
    assert tried() is None
    begun = int(time.time())
    answer = attempt(phrases=[first])
    assert answer.status == 200
    assert answer.json()["backup_confirmed"] is True
    assert begun <= tried() == answer.json()["restore_tried"] <= time.time()
    assert sorted((folder / "proxy" / "keyrings").iterdir()) == files
    assert [file.read_bytes() for file in files] == kept
    assert stranger.proxy("GET", "/api/keyring/").json()["restore_tried"] is None

    # A newer version has a backup of its own, which was not tried.
    assert store.proxy("POST", "/api/keyring/rotate/").status == 201
    assert tried() is None
    refused = attempt(phrases=[first])
    assert refusal(refused) == (400, "invalid_phrase")
    assert "lacks version 2" in refused.json()["detail"]
    file = store.proxy("POST", "/api/keyring/backup/file/", {"passphrase": PASSPHRASE}).body
    named = base64.b64encode(file).decode()
    wrong_words = attempt(file=named, passphrase=PASSPHRASE + "!")
    assert refusal(wrong_words) == (400, "invalid_backup")
    assert attempt(file=named, passphrase=PASSPHRASE).status == 200
    assert tried() >= begun
    events = store.proxy("GET", "/api/devices/").json()["events"]
    assert [event["kind"] for event in events].count("restore_tried") == 2


def test_a_keyring_is_replaced_only_when_asked_and_the_old_one_is_kept(
    shared: Service, folder: Path
) -> None:
    store, other = filled(shared), filled(shared)
    mine, theirs = phrase_of(store), phrase_of(other)
    assert names(store) == NAMES
    earlier = set((folder / "proxy" / "keyrings").iterdir())

    assert refusal(restore(store, theirs)) == (409, "keyring_exists")
    assert names(store) == NAMES
    assert restore(store, theirs, replace=True).status == 201
    (kept,) = set((folder / "proxy" / "keyrings").iterdir()) - earlier
    assert kept.name.endswith(".keyring.previous")
    # Nothing that was opened before is answered from memory.
    assert refusal(store.ask()) == (422, "identity_replaced")
    assert refusal(store.send([{"name": "x"}])) == (422, "identity_replaced")

    assert restore(store, mine, replace=True).status == 201
    assert names(store) == NAMES


def test_a_keyring_is_nobody_elses_and_asking_for_it_makes_none(shared: Service) -> None:
    store = Store(shared, shared.new_account(), "")
    for method, path in (
        ("GET", "/api/keyring/"),
        ("POST", "/api/keyring/backup/"),
        ("POST", "/api/keyring/backup/confirm/"),
        ("POST", "/api/keyring/restore/"),
        ("POST", "/api/keyring/rotate/"),
        ("GET", "/api/keyring/schemas/"),
    ):
        nobody = Store(shared, Account("nobody@example.org", "x" * 12, ""), "")
        assert nobody.proxy(method, path, {}).status == 401
    assert refusal(store.proxy("GET", "/api/keyring/")) == (404, "no_keyring")
    assert refusal(store.proxy("GET", "/api/keyring/")) == (404, "no_keyring")


@pytest.mark.parametrize("path", ["/api/keyring/x/", "/api/keyring/restore/x", "/api/keyring"])
def test_what_is_sent_to_the_keyring_is_never_forwarded(shared: Service, path: str) -> None:
    store = Store(shared, shared.new_account(), "")
    assert refusal(store.proxy("POST", path, {"phrase": "x"})) == (404, "not_forwarded")


def test_a_body_of_another_form_is_not_repeated(shared: Service) -> None:
    store = Store(shared, shared.new_account(), "")
    for body in ({"phrases": [["xylophone"]]}, "xylophone", {"words": "xylophone"}):
        answer = store.proxy("POST", "/api/keyring/restore/", body)
        assert refusal(answer) == (400, "invalid_query")
        assert b"xylophone" not in answer.body
