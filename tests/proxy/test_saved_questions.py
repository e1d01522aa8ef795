"""Questions that somebody saves by name: sealed here, unknown to the API, and nobody else's."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from encrypted_records.model.ids import from_text
from encrypted_records.proxy import saved_questions
from tests.support.front import Front, running_front
from tests.support.page_visits import Browser, logged_in
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
    },
}
#: A name and a value that occur nowhere else.
NAME, VALUE = "Kestrels of the fen", "Zaunkoenig"
ASKED = {"part-0": f'name = "{VALUE}"', "order": "age", "descending": "yes"}


@dataclass
class World:
    front: Front
    proxy: Proxy
    folder: Path
    store: Store
    browser: Browser

    @property
    def path(self) -> str:
        return f"/schemas/{self.store.schema_id}/questions/"

    def page(self) -> str:
        return self.browser.visit(self.path).body.decode()

    def ids(self) -> list[str]:
        return re.findall(rf'href="[^"]*{self.path}([^"/]+)/"', self.page())


@pytest.fixture(scope="module")
def world(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("questions")
    with running_front(service.base_url) as front, running_proxy(front.url, folder) as proxy:
        own = replace(service, proxy_url=proxy.url)
        store = new_store(own, DEFINITION)
        store.ingest([{"name": "Ada", "age": 36}, {"name": "Grace", "age": 85}])
        browser = logged_in(own, store.account)
        assert browser.visit(f"/schemas/{store.schema_id}/search/").status == 200
        yield World(front, proxy, folder, store, browser)


@pytest.fixture
def saved(world: World) -> Iterator[str]:
    """The identifier of one."""
    world.front.forget()
    answer = world.browser.visit(world.path, do="save", name=NAME, **ASKED)
    assert answer.status == 200
    (identifier,) = world.ids()
    yield identifier
    for one in world.ids():
        world.browser.visit(world.path, do=f"delete:{one}")
    assert world.ids() == []


def test_a_question_is_opened_again_as_it_was_saved(world: World, saved: str) -> None:
    assert NAME in world.page()
    assert VALUE in world.page()
    opened = world.browser.visit(f"{world.path}{saved}/").body.decode()
    assert f"<bdi>name = &#34;{VALUE}&#34;</bdi>" in opened
    assert 'name="order" value="age"' in opened
    assert 'name="descending" value="yes"' in opened


def test_neither_the_disk_nor_the_api_has_it_in_plain_text(world: World, saved: str) -> None:
    world.browser.visit(f"{world.path}{saved}/")
    files = [path.read_bytes() for path in world.folder.rglob("*") if path.is_file()]
    assert len(files) > 5
    for text in (NAME, VALUE):
        assert not any(text.encode() in content for content in files)
        for asked in world.front.asked:
            assert text not in asked.path
            assert text.encode() not in asked.body
    # Nor does it hear that there is one.
    assert not any("question" in asked.path for asked in world.front.asked)
    assert world.front.asked


def test_it_is_renamed_and_no_two_have_one_name(world: World, saved: str) -> None:
    world.browser.visit(world.path, do=f"rename:{saved}", name="  Other   name ")
    assert "Other name" in world.page()
    assert NAME not in world.page()
    assert world.browser.visit(world.path, do="save", name=NAME, **ASKED).status == 200
    refused = world.browser.visit(world.path, do=f"rename:{saved}", name=NAME)
    assert refused.status == 400
    assert b"Another question already has this name" in refused.body
    again = world.browser.visit(world.path, do="save", name="Other name", **ASKED)
    assert again.status == 400
    # What was to be saved can be saved under another name.
    assert f'value="name = &#34;{VALUE}&#34;"'.encode() in again.body
    for name in ("", "   ", "x" * 101):
        assert world.browser.visit(world.path, do="save", name=name, **ASKED).status == 400
    assert len(world.ids()) == 2


def test_no_other_user_and_no_other_schema_has_it(world: World, saved: str) -> None:
    other = new_store(world.store.service, DEFINITION)
    stranger = logged_in(world.store.service, other.account)
    assert stranger.visit(world.path).status == 404
    assert stranger.visit(f"{world.path}{saved}/").status == 404
    own = f"/schemas/{other.schema_id}/questions/"
    assert stranger.visit(f"{own}{saved}/").status in (403, 404)
    assert stranger.visit(own, do=f"delete:{saved}").status in (403, 404)
    assert world.ids() == [saved]
    second = world.store.another_schema(DEFINITION)
    elsewhere = f"/schemas/{second.schema_id}/questions/"
    assert world.browser.visit(f"{elsewhere}{saved}/").status == 404
    assert world.browser.visit(elsewhere, do=f"delete:{saved}").status == 404
    assert world.ids() == [saved]


def test_what_was_altered_on_disk_is_counted_and_not_shown(world: World, saved: str) -> None:
    store = world.proxy.services.stores.questions
    schema = from_text(world.store.schema_id)
    user = _user(world)
    ((identifier, sealed),) = store.find_all(user, schema)
    assert len(sealed) == 4 + 12 + saved_questions.PAD_BYTES + 16
    store.put(identifier, user, schema, sealed[:-1] + bytes([sealed[-1] ^ 1]))
    assert NAME not in world.page()
    assert "1 question is encrypted with a key that is not in your keyring" in world.page()
    store.put(identifier, user, schema, sealed)
    assert NAME in world.page()


def _user(world: World) -> bytes:
    database = sqlite3.connect(world.folder / "proxy" / "questions.sqlite3")
    (user,) = database.execute("SELECT user FROM question").fetchone()
    database.close()
    return bytes(user)


def _count(world: World) -> int:
    database = sqlite3.connect(world.folder / "proxy" / "questions.sqlite3")
    (count,) = database.execute("SELECT count(*) FROM question").fetchone()
    database.close()
    return int(count)


def test_two_that_are_saved_at_once_get_no_name_twice_and_are_no_more_than_allowed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 20
    monkeypatch.setattr(saved_questions, "MOST_QUESTIONS", most)

    def save(name: str) -> int:
        return world.browser.visit(world.path, do="save", name=name, **ASKED).status

    with ThreadPoolExecutor(8) as pool:
        same = list(pool.map(save, [NAME] * 8))
    assert sorted(same) == [200] + [400] * 7
    names = [f"{NAME} {number}" for number in range(most + 4)]
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(save, names))
    assert statuses.count(200) == most - 1
    assert _count(world) == most
    for one in world.ids():
        world.browser.visit(world.path, do=f"delete:{one}")
    assert world.ids() == []


def test_those_of_a_schema_that_its_user_deletes_go_with_it(world: World, saved: str) -> None:
    for with_its_dataset in (False, True):
        other = world.store.another_schema(DEFINITION)
        path, name = f"/schemas/{other.schema_id}/", ""
        answer = world.browser.visit(f"{path}questions/", do="save", name=NAME, **ASKED)
        assert answer.status == 200
        assert _count(world) == 2
        if with_its_dataset:
            dataset = world.store.proxy("GET", f"/api{path}").json()["dataset"]
            path = dataset.removeprefix("/api")
            name = world.store.proxy("GET", dataset).json()["name"]
        deleted = world.browser.visit(f"{path}delete/", name=name)
        assert deleted.status == 200, deleted.body
        assert _count(world) == 1
    assert world.ids() == [saved]


@pytest.mark.parametrize("name", ["do", "name"])
def test_a_form_of_nonsense_is_refused(world: World, name: str) -> None:
    for text in ("rename:x", "delete:" + "2" * 22, "fly:1", "\x00", "save:" * 5000):
        answer = world.browser.visit(world.path, **{name: text})
        assert answer.status in (400, 403, 404)
    assert world.ids() == []


def test_a_question_that_is_too_long_is_not_saved(world: World) -> None:
    long = {"part-0": "x" * (saved_questions.MOST_BYTES + 1)}
    answer = world.browser.visit(world.path, do="save", name=NAME, **long)
    assert answer.status == 400
    assert b"too long to be saved" in answer.body
    assert world.ids() == []


def test_a_locked_keyring_opens_none(world: World, saved: str) -> None:
    passphrase = "seven wet kettles 1815"
    changed = world.store.proxy("POST", "/api/keyring/passphrase/", {"new": passphrase})
    assert changed.status == 200, changed.body
    assert world.store.proxy("POST", "/api/keyring/lock/").status == 200
    page = world.browser.visit(world.path)
    assert NAME.encode() not in page.body
    assert b"Register this browser" in page.body  # where its passphrase is typed
    search = world.browser.visit(f"/schemas/{world.store.schema_id}/search/")
    assert b"<h1>Register this browser</h1>" in search.body
    opened = world.browser.visit("/device/", shown=passphrase)
    assert opened.status == 200
    assert NAME in world.page()
