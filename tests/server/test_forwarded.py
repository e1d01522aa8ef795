"""What proxies hand on and what they never do is all that the API has."""

from __future__ import annotations

import re
from typing import Any

import pytest

from encrypted_records.model.forwarded import FORWARDED, MAX_BODY_BYTES, NEVER, methods_of
from encrypted_records.model.ids import new_id, to_text
from tests.server.api import Account

#: What a proxy adds for itself, which the API does not know.
ITS_OWN = {("/api/records/", "sealed"), ("/api/records/{}/", "sealed")}


def nameless(path: str) -> str:
    return re.sub(r"\{\w+\}", "{}", path)


@pytest.fixture(scope="module")
def operations(ada: Account) -> dict[tuple[str, str], dict[str, Any]]:
    """What the API's document says of each method and path."""
    document = ada.call("GET", "/api/openapi.json").json()
    return {
        (method.upper(), nameless(path)): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_each_endpoint_of_the_api_is_handed_on_or_never_for_a_reason(
    operations: dict[tuple[str, str], Any],
) -> None:
    handed_on = {(one.method, nameless(one.template)) for one in FORWARDED}
    never = {(method, nameless(path)) for method, path in NEVER}
    assert len(handed_on) == len(FORWARDED)
    assert not handed_on & never
    assert handed_on | never == set(operations)
    assert all(NEVER.values())


def test_parameters_and_media_types_are_those_of_the_api(
    operations: dict[tuple[str, str], Any],
) -> None:
    for one in FORWARDED:
        path = nameless(one.template)
        operation = operations[one.method, path]
        named = {it["name"] for it in operation["parameters"] if it["in"] == "query"}
        own = {name for of, name in ITS_OWN if of == path}
        assert one.query == named | own, one
        assert one.takes == set(operation.get("requestBody", {}).get("content", {})), one
        for status, answer in operation["responses"].items():
            kinds = set(answer.get("content", {}))
            assert kinds <= {"application/json"}, (one, status)


def test_structures_of_answers_are_those_of_the_api(
    operations: dict[tuple[str, str], Any],
) -> None:
    for one in FORWARDED:
        responses = operations[one.method, nameless(one.template)]["responses"]
        [content] = [
            response.get("content") for status, response in responses.items() if status < "300"
        ]
        described = {} if content is None else content["application/json"]["schema"]
        named = described.get("$ref", "").rpartition("/")[2]
        if one.structure is None:
            # Pages read records of the proxy alone.
            assert not named or one.resources == "records", one
            continue
        [kind] = getattr(one.structure, "__args__", [one.structure])
        name = kind.__name__.removesuffix("Resource")
        assert named == (name if kind is one.structure else f"Paginated{name}List"), one


def test_cookies_come_from_the_endpoints_that_begin_and_end_sessions() -> None:
    both = {"sessionid", "csrftoken"}
    assert {one.template: one.sets for one in FORWARDED if one.sets} == {
        "/api/csrf/": {"csrftoken"},
        "/api/accounts/login/": both,
        "/api/accounts/logout/": both,
        "/api/accounts/change-password/": both,
        "/api/accounts/delete/": both,
    }


def test_the_longest_body_is_the_one_that_the_api_takes(ada: Account) -> None:
    longest = ada.call("POST", "/api/schemas/", b" " * MAX_BODY_BYTES)
    longer = ada.call("POST", "/api/schemas/", b" " * (MAX_BODY_BYTES + 1))
    assert (longest.status, longer.status) == (400, 413)
    assert max(one.most for one in FORWARDED) == MAX_BODY_BYTES


def test_a_path_is_handed_on_as_it_is_spelled_and_no_other_way() -> None:
    some = to_text(new_id())
    for template in {one.template for one in FORWARDED}:
        path = re.sub(r"\{\w+\}", some, template)
        assert methods_of(path), template
        assert re.fullmatch(r"/api/[A-Za-z0-9/_.-]*", path)
        for wrong in (path[:-1], path + "/", path.upper(), path + "\n", "/" + path, path + "?"):
            assert not methods_of(wrong), wrong


@pytest.mark.parametrize("path", ["/api/schemas/{}/", "/api/organizations/{}/members/{}/"])
def test_an_identifier_has_its_form(path: str) -> None:
    some = to_text(new_id())
    assert methods_of(path.replace("{}", some))
    longer, shorter, escaped = some + some[0], some[:-1], f"%32{some[1:]}"
    for wrong in (longer, shorter, escaped, some[:-1] + "0", "self", "..", ".", ""):
        assert not methods_of(path.replace("{}", wrong, 1).replace("{}", some)), wrong
    assert set(methods_of("/api/users/self/")) == {"GET"}
