"""A copy that is altered, or older than what was seen, is named and never believed."""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.errors import MirrorBroken
from encrypted_records.index.log.order import LogHead
from encrypted_records.mirror.copy import ENTRY_BYTES
from encrypted_records.mirror.layout import HEAD, MAX_BYTES, by_content, read_head
from encrypted_records.mirror.serving import serving_inline
from encrypted_records.mirror.verifying import MirrorProof, MirrorVerifier
from encrypted_records.model import ids
from encrypted_records.proxy.schemas.store import Heads
from encrypted_records.proxy.settings import MirrorPlace
from encrypted_records.proxy.stores import Memory
from tests.mirror.conftest import DEFINITION
from tests.mirror.copies import Place, basic
from tests.mirror.test_reading_a_mirror import people
from tests.support.fixtures import at
from tests.support.proxies import running_proxy
from tests.support.service import Answer, Service, call
from tests.support.store import Store, new_store

#: Every kind of object, by its path.
KINDS = {
    "log": r"schemas/\w+/log/",
    "roster": r"organizations/\w+/roster/",
    "grants": r"organizations/\w+/grants/",
    "header of a segment": r"segments/\w+/header",
    "digests of a segment": r"segments/\w+/digests",
    "page": r"segments/\w+/\d+",
    "digests of a group": r"groups/\w+/digests",
    "index of ids": r"groups/\w+/ids-\d+",
    "rows": r"groups/\w+/\d+-\d+",
    "names": r"resources/",
}


@pytest.fixture
def copied(store: Store, place: Place) -> Place:
    records = store.ingest(people(70))
    assert store.proxy("DELETE", f"/api/records/{records[1]}/").status == 204
    place.copy(store)
    return place


@pytest.fixture(scope="module")
def whole(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("whole")
    made = Place(folder / "mirror", folder / "data")
    with running_proxy(service.base_url, made.data_dir) as proxy:
        store = at(new_store(service, DEFINITION), proxy)
        records = store.ingest(people(70))
        assert store.proxy("DELETE", f"/api/records/{records[1]}/").status == 204
        made.copy(store)
    return made


@pytest.fixture
def mirror(whole: Place, tmp_path: Path) -> Place:
    """One to alter, where no proxy reads it."""
    return Place(shutil.copytree(whole.path, tmp_path / "alone"), whole.data_dir)


def the_one(place: Place, kind: str) -> Path:
    form = re.compile(KINDS[kind])
    found = [path for path in place.files() if form.search(str(path.relative_to(place.path)))]
    return max(found, key=lambda path: path.stat().st_size)


def read_all(place: Place, store: Store) -> list[Answer]:
    """Everything that a reader asks for, from empty caches."""
    pages = place.data_dir / "proxy" / "pages.sqlite3"
    with place.read(store) as mirrored:
        record = store.found()[5]
        found = [
            mirrored.ask(),
            mirrored.ask({"field": "age", "op": "lt", "value": 50}),
            mirrored.proxy("GET", f"/api/records/{record}/"),
            mirrored.proxy("GET", mirrored.schema),
        ]
    assert pages.exists()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_an_altered_byte_is_named_with_its_object(kind: str, mirror: Place) -> None:
    path = the_one(mirror, kind)
    where = (0.0, 0.5, 0.99)[list(KINDS).index(kind) % 3]
    data = bytearray(path.read_bytes())
    data[int(where * len(data))] ^= 0x01
    path.write_bytes(data)

    flaws = mirror.flaws()

    assert flaws, f"{kind} was altered, and nothing is said"
    name = str(path.relative_to(mirror.path))
    if kind in ("log", "roster"):
        assert name.split("/")[1] in " ".join(flaws)
    else:
        assert name in " ".join(flaws)


@pytest.mark.parametrize("kind", ["log", "roster", "page", "rows", "digests of a group"])
def test_a_proxy_never_answers_from_an_altered_object(
    kind: str, copied: Place, store: Store
) -> None:
    path = the_one(copied, kind)
    data = bytearray(path.read_bytes())
    data[-3] ^= 0x01
    path.write_bytes(data)
    expected = store.search()["results"]
    forget_copies(copied)

    for answer in read_all(copied, store):
        if answer.status == 200 and b'"results"' in answer.body:
            assert answer.json()["results"] == expected, "only what was not altered"
        elif answer.status != 200:
            assert answer.json()["code"] in ("mirror_altered", "log_broken", "roster_broken")


def forget_copies(place: Place) -> None:
    """Have the proxy hold nothing of what it has read: what it answers then is the mirror's."""
    for name in ("pages.sqlite3", "ledgers.sqlite3"):
        for path in (place.data_dir / "proxy").glob(f"{name}*"):
            path.unlink()


@pytest.mark.parametrize("at", [3, -1])
def test_a_record_is_never_denied_or_exchanged_by_an_altered_index_of_ids(
    at: int, copied: Place, store: Store
) -> None:
    records = store.found()
    unknown = ids.to_text(ids.new_id())
    with copied.read(store) as mirrored:
        assert mirrored.proxy("GET", f"/api/records/{unknown}/").status == 404
    path = the_one(copied, "index of ids")
    data = bytearray(path.read_bytes())
    for start in range(0, len(data), ENTRY_BYTES):
        data[range(start, start + ENTRY_BYTES)[at]] ^= 0x01
    path.write_bytes(data)

    with copied.read(store) as mirrored:
        answers = [mirrored.proxy("GET", f"/api/records/{one}/") for one in (*records, unknown)]
    assert {(one.status, one.json()["code"]) for one in answers} == {(422, "mirror_altered")}


def test_an_object_that_is_missing_is_named(mirror: Place) -> None:
    path = the_one(mirror, "rows")
    path.unlink()

    assert any(str(path.relative_to(mirror.path)) in flaw for flaw in mirror.flaws())


def test_what_was_deleted_because_it_was_altered_is_copied_again(
    copied: Place, store: Store
) -> None:
    for kind in ("page", "rows", "index of ids", "header of a segment"):
        the_one(copied, kind).unlink()
    assert copied.flaws() != []

    copied.copy(store)

    assert copied.flaws() == []


def test_a_copy_older_than_what_the_proxy_has_seen_is_named_stale(
    store: Store, place: Place
) -> None:
    store.ingest(people(2))
    place.copy(store)
    older = place.path.with_name("older")
    shutil.copytree(place.path, older)
    store.ingest(people(1))
    assert len(store.found()) == 3, "the proxy has seen it"

    with Place(older, place.data_dir).read(store) as mirrored:
        answer = mirrored.ask()
    assert (answer.status, answer.json()["code"]) == (422, "mirror_stale")
    assert "ers mirror" in answer.json()["hint"]

    place.copy(store)
    with place.read(store) as mirrored:
        assert len(mirrored.found()) == 3


def test_an_older_copy_is_read_by_who_says_so(store: Store, place: Place) -> None:
    store.ingest(people(2))
    place.copy(store)
    store.ingest(people(1))
    assert len(store.found()) == 3

    for _ in range(2):
        with place.read(store, accept_stale=True) as mirrored:
            assert len(mirrored.found()) == 2
    assert len(store.found()) == 3, "what the proxy has seen of the API is not forgotten"


@pytest.mark.parametrize("accept_stale", [False, True])
def test_a_copy_with_other_commits_than_were_seen_is_not_stale_but_broken(
    accept_stale: bool, copied: Place, store: Store
) -> None:
    seen_otherwise(copied, store.schema_id)

    with copied.read(store, accept_stale=accept_stale) as mirrored:
        answer = mirrored.ask()
    assert (answer.status, answer.json()["code"]) == (422, "log_broken")
    assert "--accept-stale" not in answer.json()["hint"]


def test_a_check_compares_with_what_the_proxy_has_seen(copied: Place, store: Store) -> None:
    proof = compared(copied)
    assert (proof.flaws, proof.unsigned) == ([], [])
    (anchor,) = proof.anchors
    assert anchor.is_known
    people = store.proxy("GET", f"{store.account.organization}people/").json()
    assert (anchor.words, anchor.number) == (people["words"], people["number"])

    seen_otherwise(copied, store.schema_id)
    (flaw,) = compared(copied).flaws
    assert store.schema_id in flaw


def test_a_check_names_an_organization_whose_roster_was_left_out(
    copied: Place, store: Store
) -> None:
    head = json.loads(copied.folder.read(HEAD))
    ((name, named),) = head["organizations"].items()
    named |= {"roster": [], "number": 0, "digest": ""}
    head["schemas"] = {}
    copied.folder.write(HEAD, json.dumps(head).encode())

    assert copied.flaws() == [], "it is whole in itself"
    (flaw,) = compared(copied).flaws
    assert name in flaw


def compared(place: Place) -> MirrorProof:
    with closing(Memory(place.data_dir / "proxy")) as memory:
        return MirrorVerifier(place.folder, lambda _line: None, memory).run()


def seen_otherwise(place: Place, schema: str) -> None:
    """Have the proxy have seen another commit in place of the newest one, and one behind it."""
    head = read_head(place.folder)
    newest = head.schemas[schema].version
    heads = Heads(place.data_dir / "proxy" / "heads.sqlite3")
    other = [LogHead(newest, bytes(32)), LogHead(newest + 1, bytes(32))]
    user = ids.from_text(head.member)
    heads.remember(user, ids.from_text(schema), other[1], other)
    heads.close()


def test_a_folder_that_is_no_mirror_is_named(place: Place) -> None:
    place.path.mkdir()
    (place.path / HEAD).write_bytes(b"{}")

    with pytest.raises(Exception, match="is not the head of a mirror") as raised:
        place.flaws()
    assert getattr(raised.value, "reason", "") == "mirror_altered"


NO_NAMES: list[dict[str, Any]] = [
    {"resources": "/dev/zero"},
    {"resources": "../../secret"},
    {"resources": "resources/\x00.json"},
    {"resources": "resources/\x1b[2J.json"},
    {"taken": -1.0},
    {"taken": 1e300},
    {"source": "http://\x1b[31mexample.org"},
    {"member": "nobody"},
    {"organizations": {}},
]


@pytest.mark.parametrize("change", NO_NAMES, ids=str)
def test_a_head_that_names_what_a_mirror_cannot_hold_is_altered(
    change: dict[str, Any], mirror: Place
) -> None:
    refuse_head(mirror, change)


@pytest.mark.parametrize("member", ["roster", "grants", "log", "digest", "version"])
def test_so_is_one_that_names_the_objects_of_another(member: str, mirror: Place) -> None:
    head = json.loads(mirror.folder.read(HEAD))
    part = "organizations" if member in ("roster", "grants") else "schemas"
    ((name, named),) = head[part].items()
    other = ids.to_text(ids.new_id())
    wrong: dict[str, Any] = {
        "roster": [f"organizations/{other}/roster/1-2"],
        "grants": named.get("grants", "").replace(name, other),
        "log": [f"schemas/{name}/log/1-{'9' * 5000}"],
        "digest": "0",
        "version": -1,
    }
    refuse_head(mirror, {part: {name: named | {member: wrong[member]}}})


def refuse_head(place: Place, change: dict[str, Any]) -> None:
    head = json.loads(place.folder.read(HEAD))
    place.folder.write(HEAD, json.dumps(head | change).encode())
    with pytest.raises(MirrorBroken, match="names what a mirror cannot hold") as raised:
        place.flaws()
    assert raised.value.reason == "mirror_altered"


@pytest.mark.parametrize(
    ("collection", "listed"),
    [
        ("organizations", b"5"),
        ("datasets", b"null"),
        ("schemas", b'["id"]'),
        ("schemas", b"[" * 100_000 + b"]" * 100_000),
    ],
)
def test_a_list_of_something_else_than_resources_is_altered(
    listed: bytes, collection: str, mirror: Place
) -> None:
    head = json.loads(mirror.folder.read(HEAD))
    lists = json.loads(mirror.folder.read(head["resources"]))
    lists[collection].append("listed")
    data = json.dumps(lists).encode().replace(b'"listed"', listed)
    name = by_content("resources", data, ".json")
    mirror.folder.write(name, data)
    mirror.folder.write(HEAD, json.dumps(head | {"resources": name}).encode())

    assert any(name in flaw for flaw in mirror.flaws())
    with serving_inline(mirror.folder) as (url, secret):
        answer = call("GET", f"{url}/api/{collection}/", auth=basic(head["member"], secret))
    assert (answer.status, answer.json()["code"]) == (422, "mirror_altered")


@pytest.mark.parametrize("what", ["link", "pipe", "folder", "too long"])
def test_what_is_no_file_of_a_mirror_is_named_and_not_waited_for(what: str, mirror: Place) -> None:
    path = the_one(mirror, "names")
    path.unlink()
    if what == "link":
        path.symlink_to("/etc/hostname")
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(MAX_BYTES + 1)

    (flaw,) = mirror.flaws()
    assert "no object of a mirror" in flaw
    assert str(path.relative_to(mirror.path)) in flaw


def test_an_api_that_is_no_mirror_is_named(store: Store, place: Place) -> None:
    store.ingest(people(1))
    base_url = store.service.base_url
    with running_proxy(base_url, place.data_dir, mirror=MirrorPlace(base_url)) as proxy:
        headers = {"X-ERS-Device": store.device.text}
        answer = call("GET", f"{proxy.url}/api/datasets/", headers=headers)
    assert (answer.status, answer.json()["code"]) == (502, "not_a_mirror")


def test_a_copy_from_before_a_rotation_of_the_keyring_is_not_read_by_who_accepts_stale_ones(
    copied: Place, store: Store
) -> None:
    rotated = store.proxy("POST", "/api/keyring/rotate/", {})
    assert rotated.status < 300, rotated.body
    assert len(store.found()) == 69

    with copied.read(store, accept_stale=True) as mirrored:
        answer = mirrored.ask()
    assert (answer.status, answer.json()["code"]) == (422, "roster_unknown")
