"""Over a mirror alone, the backup of a keyring brings everything back: rosters show whose it is."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from encrypted_records.model import credentials, ids
from encrypted_records.model.credentials import DeviceSecret
from tests.mirror.conftest import DEFINITION
from tests.mirror.copies import Place
from tests.mirror.test_reading_a_mirror import people
from tests.mirror.test_shared_mirrors import take_in
from tests.proxy.sharing.shared import Shared, numbers
from tests.support.page_visits import Browser
from tests.support.proxies import running_proxy
from tests.support.service import Answer, Service, call, cookies_of
from tests.support.store import Store, new_store

RESTORE = "/api/keyring/restore/"
DEVICES = "/api/devices/"


@dataclass(frozen=True)
class Machine:
    """A program that has a device secret, and neither an account nor a login."""

    url: str
    device: DeviceSecret

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        shown = {credentials.DEVICE_HEADER: self.device.text, **headers}
        return call(method, self.url + path, body, headers=shown)

    def restore(self, phrases: list[str], **more: Any) -> Answer:
        return self.ask("POST", RESTORE, {"phrases": phrases, **more})

    def names(self, store: Store) -> list[str]:
        body = {"schema": store.schema, "where": None, "limit": 1000}
        found = self.ask("POST", "/api/records/search/", body)
        assert found.status == 200, found.body
        return sorted(one["data"]["name"] for one in found.json()["results"])

    def may_read(self, store: Store) -> tuple[int, str]:
        return refused(self.ask("POST", "/api/records/search/", {"schema": store.schema}))


def machine(store: Store) -> Machine:
    return Machine(store.service.proxy_url, credentials.generate_device_secret())


def refused(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json().get("code", "")


def until_throttled(attempt: Callable[[], Answer]) -> list[Answer]:
    """The answers to wrong attempts, each of which makes the next wait longer, up to the one that
    came too early."""
    answers = [attempt()]
    while answers[-1].status != 429:
        assert len(answers) < 10, answers
        answers.append(attempt())
    return answers


def words_of(store: Store) -> list[str]:
    """All words of the keyring, the oldest version first."""
    shown = store.proxy("POST", "/api/keyring/backup/", {"all": True})
    assert shown.status == 200, shown.body
    return [one["phrase"] for one in shown.json()]


def file_of(store: Store, passphrase: str) -> str:
    made = store.proxy("POST", "/api/keyring/backup/file/", {"passphrase": passphrase})
    assert made.status == 200, made.body
    return base64.b64encode(made.body).decode()


@pytest.fixture
def copied(store: Store, place: Place, tmp_path: Path) -> Place:
    """A mirror, as it is read on a machine that has nothing else."""
    store.ingest(people(3))
    place.copy(store)
    return replace(place, data_dir=tmp_path / "another")


NAMES = ["person 0", "person 1", "person 2"]


def test_words_and_a_mirror_are_enough_to_read_everything(copied: Place, store: Store) -> None:
    words = words_of(store)

    with copied.read(store) as mirrored:
        mine = machine(mirrored)
        assert mine.may_read(store) == (401, "device_unknown")
        restored = mine.restore(words)
        assert restored.status == 201, restored.body
        assert mine.names(store) == NAMES
        listed = mine.ask("GET", DEVICES).json()
    with copied.read(store) as mirrored:  # also after a restart
        assert replace(mine, url=mirrored.service.proxy_url).names(store) == NAMES
    assert restored.json()["fingerprint"] == listed["keyring"]["fingerprint"]
    assert [one["way"] for one in listed["devices"]] == ["restored"]


def test_so_is_the_file_with_its_passphrase(copied: Place, store: Store) -> None:
    file = file_of(store, "a passphrase of a backup")

    with copied.read(store) as mirrored:
        mine = machine(mirrored)
        told = until_throttled(
            lambda: mine.ask("POST", RESTORE, {"file": file, "passphrase": "another passphrase"})
        )
        assert refused(told[0]) == (400, "invalid_backup")
    with copied.read(store) as mirrored:
        mine = machine(mirrored)
        body = {"file": file, "passphrase": "a passphrase of a backup"}
        assert mine.ask("POST", RESTORE, body).status == 201
        assert mine.names(store) == NAMES


def test_the_keyring_of_somebody_else_is_not_taken_for_a_members(
    copied: Place, store: Store, service: Service, tmp_path: Path
) -> None:
    with running_proxy(service.base_url, tmp_path / "other") as proxy:
        other = new_store(replace(service, proxy_url=proxy.url), DEFINITION)
        words = words_of(other)

    with copied.read(store) as mirrored:
        mine = machine(mirrored)
        assert refused(mine.restore(words)) == (422, "roster_unknown")
        assert mine.may_read(store) == (401, "device_unknown")
    assert list((copied.data_dir / "proxy" / "keyrings").glob("*")) == []


def test_without_a_device_nothing_is_restored(copied: Place, store: Store) -> None:
    words = words_of(store)

    with copied.read(store) as mirrored:
        url = mirrored.service.proxy_url + RESTORE
        assert refused(call("POST", url, {"phrases": words})) == (401, "device_needed")


def test_a_roster_that_knows_older_keys_is_believed_only_if_the_user_says_so(
    copied: Place, store: Store
) -> None:
    assert store.proxy("POST", "/api/keyring/rotate/", {}).status == 201
    words = words_of(store)
    assert len(words) == 2

    with copied.read(store) as mirrored:
        assert refused(machine(mirrored).restore(words)) == (422, "roster_unknown")
    with copied.read(store) as mirrored:
        mine = machine(mirrored)
        assert mine.restore(words, older_keys=True).status == 201
        assert mine.names(store) == NAMES


def test_the_words_of_an_older_version_alone_do_not_restore_what_has_newer_keys(
    store: Store, place: Place, tmp_path: Path
) -> None:
    store.ingest(people(3))
    older = words_of(store)
    assert store.proxy("POST", "/api/keyring/rotate/", {}).status == 201
    newest = words_of(store)
    for phrase in newest:
        confirmed = store.proxy("POST", "/api/keyring/backup/confirm/", {"phrase": phrase})
        assert confirmed.status == 200, confirmed.body
    store.ingest(people(1))
    settled = store.proxy("POST", f"{store.account.organization}settle/", {})
    assert settled.status == 200, settled.body
    place.copy(store)
    alone = replace(place, data_dir=tmp_path / "another")

    with alone.read(store) as mirrored:
        assert refused(machine(mirrored).restore(older)) == (422, "roster_unknown")
    with alone.read(store) as mirrored:
        mine = machine(mirrored)
        assert mine.restore(newest).status == 201
        assert mine.names(store) == sorted([*NAMES, "person 0"])


def test_a_damaged_roster_restores_nothing(copied: Place, store: Store) -> None:
    words = words_of(store)
    roster, *_ = sorted(copied.path.glob("organizations/*/roster/*"))
    content = bytearray(roster.read_bytes())
    content[len(content) // 2] ^= 1
    roster.write_bytes(bytes(content))

    with copied.read(store) as mirrored:
        mine = machine(mirrored)
        assert mine.restore(words).status in (422, 502)
        assert mine.may_read(store) == (401, "device_unknown")


def test_an_older_copy_than_this_proxy_has_seen_restores_nothing(
    copied: Place, store: Store, place: Place
) -> None:
    words = words_of(store)
    store.another_schema(DEFINITION).ingest(people(1))
    for keyring in (place.data_dir / "proxy" / "keyrings").glob("*.keyring"):
        keyring.unlink()

    with place.read(store) as mirrored:
        assert refused(machine(mirrored).restore(words)) == (422, "mirror_stale")
    with place.read(store, accept_stale=True) as mirrored:
        mine = machine(mirrored)
        assert mine.restore(words).status == 201
        assert mine.names(store) == NAMES


def test_a_second_device_comes_in_with_a_code_or_words_and_leaves_when_it_is_revoked(
    copied: Place, store: Store
) -> None:
    words = words_of(store)

    with copied.read(store) as mirrored:
        first, second, third = (machine(mirrored) for _ in range(3))
        assert first.restore(words).status == 201
        assert refused(second.ask("POST", DEVICES, {"name": "b"})) == (403, "proof_needed")
        proof = {"proof": {"phrase": words[-1]}}
        code = first.ask("POST", f"{DEVICES}code/", proof).json()["code"]
        assert second.ask("POST", DEVICES, {"name": "b", "code": code}).status == 201
        assert refused(third.ask("POST", DEVICES, {"code": code})) == (403, "code_wrong")
        until_throttled(lambda: third.ask("POST", DEVICES, {"code": code}))
        assert second.names(store) == NAMES
        assert second.ask("DELETE", f"{DEVICES}{second.device.id}/").status == 204
        assert second.may_read(store) == (401, "device_unknown")
    with copied.read(store) as mirrored:
        third = machine(mirrored)
        assert third.ask("POST", DEVICES, {"phrase": words[-1]}).status == 201
        assert third.names(store) == NAMES


def test_on_the_proxys_own_machine_the_only_user_registers_a_device_without_a_proof(
    copied: Place, store: Store
) -> None:
    words = words_of(store)

    with copied.read(store) as mirrored:
        door = mirrored.service.door
        assert machine(mirrored).restore(words).status == 201
        second = machine(mirrored)
        assert second.ask("POST", DEVICES, {"name": "b"}, **door).status == 201
        assert second.names(store) == NAMES


def test_a_keyring_that_is_here_is_replaced_only_by_who_has_its_words(
    copied: Place, store: Store
) -> None:
    words, file = words_of(store), file_of(store, "a passphrase of a backup")
    by_file = {"file": file, "passphrase": "a passphrase of a backup"}

    with copied.read(store) as mirrored:
        first, second = machine(mirrored), machine(mirrored)
        assert first.restore(words).status == 201
        assert refused(second.ask("POST", RESTORE, by_file)) == (403, "proof_needed")
        assert second.restore(words).status == 201
        assert second.names(store) == NAMES == first.names(store)
        tried = second.ask("POST", RESTORE, {**by_file, "dry_run": True})
    assert tried.status == 200, tried.body


def test_a_keyring_is_backed_up_and_gets_a_passphrase_also_over_a_mirror(
    copied: Place, store: Store
) -> None:
    (words,) = words_of(store)
    proof = {"proof": {"phrase": words}}

    with copied.read(store) as mirrored:
        first, second = machine(mirrored), machine(mirrored)
        assert first.restore([words]).status == 201
        assert refused(first.ask("POST", "/api/keyring/backup/", {})) == (403, "proof_needed")
        shown = first.ask("POST", "/api/keyring/backup/", {"all": True, **proof}).json()
        changed = first.ask("POST", "/api/keyring/passphrase/", {"new": "paper scissors", **proof})
        assert changed.status == 200, changed.body
        assert second.ask("POST", DEVICES, {"passphrase": "paper scissors"}).status == 201
        assert second.names(store) == NAMES
    assert [one["phrase"] for one in shown] == [words]


def browser_with(mirrored: Store, shown: str) -> Browser:
    """A browser that was never here, after it has sent this on the page for new devices."""
    answer = sent_on_the_page(mirrored, shown)
    assert answer.status == 204, answer.body
    ((name, value),) = cookies_of(answer).items()
    at = str(answer.headers["HX-Redirect"]).rstrip("/")
    return Browser(mirrored.service, at, f"{name}={value}")


def sent_on_the_page(mirrored: Store, shown: str) -> Answer:
    url = mirrored.service.proxy_url
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Origin": url,
        "HX-Request": "true",  # a browser follows the redirect by itself, and shows nothing of it
    }
    form = urlencode({"shown": shown, "next": ""}).encode()
    return call("POST", f"{url}/device/", form, headers=headers)


def numbered(phrase: str) -> str:
    return "\n".join(f"{number}. {word}" for number, word in enumerate(phrase.split(), 1))


def test_a_browser_restores_the_keyring_by_its_words_and_reads(copied: Place, store: Store) -> None:
    (words,) = words_of(store)

    with copied.read(store) as mirrored:
        asked = call("GET", f"{mirrored.service.proxy_url}/login/")
        assert "the 24 words of your keyring" in asked.body.decode()
        wrong = sent_on_the_page(mirrored, numbered(words.rpartition(" ")[0]))
        assert wrong.headers["X-Error-Code"] == "invalid_phrase"
    with copied.read(store) as mirrored:
        page = browser_with(mirrored, numbered(words)).visit(
            f"/schemas/{store.schema_id}/search/?view=table"
        )
        assert page.status == 200
        assert "person 1" in page.body.decode()


def test_a_browser_comes_in_by_a_code_and_after_a_logout_only_by_another_proof(
    copied: Place, store: Store
) -> None:
    (words,) = words_of(store)

    with copied.read(store) as mirrored:
        mine = machine(mirrored)
        assert mine.restore([words]).status == 201
        made = mine.ask("POST", f"{DEVICES}code/", {"proof": {"phrase": words}}).json()["code"]
        browser = browser_with(mirrored, made)
        assert browser.visit("/datasets/").status == 200
        logged_out = replace(browser, cookie=browser.cookie.partition(".")[0] + "..")
        refused_page = logged_out.visit("/device/", shown=made)
        assert refused_page.headers["X-Error-Code"] == "code_wrong"
        assert logged_out.visit("/datasets/").status == 401
        assert refused(mine.ask("GET", "/api/datasets/")) == (200, "")


def test_each_member_restores_from_the_owners_copy_and_a_removed_one_does_not(
    shared: Shared, tmp_path: Path
) -> None:
    owner = shared.proxy(shared.team.ada)
    bob, carol = shared.person(0), shared.person(0)
    of_bob, of_carol = shared.proxy(bob), shared.proxy(carol)
    owner.ingest([{"n": 1}, {"n": 2}])
    assert numbers(of_bob) == numbers(of_carol) == [1, 2]
    take_in(of_bob)
    take_in(of_carol)
    words = {bob.id: words_of(of_bob), carol.id: words_of(of_carol)}
    assert shared.put_out(owner, carol).status < 300
    mirror = Place(tmp_path / "mirror", tmp_path / "of bob")
    mirror.copy(owner)

    with mirror.read(of_bob) as mirrored:
        mine = machine(mirrored)
        assert mine.restore(words[bob.id]).status == 201
        assert mine.ask("GET", DEVICES).json()["user"] == ids.to_text(bob.id)
        found = mine.ask("POST", "/api/records/search/", {"schema": of_bob.schema})
        assert sorted(one["data"]["n"] for one in found.json()["results"]) == [1, 2]
    with replace(mirror, data_dir=tmp_path / "of carol").read(of_carol) as mirrored:
        mine = machine(mirrored)
        assert refused(mine.restore(words[carol.id])) == (403, "not_admitted")
        assert refused(mine.ask("POST", "/api/records/search/", {"schema": of_carol.schema})) == (
            401,
            "device_unknown",
        )
