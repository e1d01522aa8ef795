"""``ers token``, and its tokens in other programs, at a proxy that asks for devices."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from encrypted_records import Client
from encrypted_records.errors import NotAllowed, NotAuthenticated
from tests.cli.people import Person, look, names_seen, password_of
from tests.support.shared_proxy import Machine, SharedProxy, shared_proxy


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedProxy]:
    with shared_proxy(tmp_path_factory.mktemp("shared")) as one:
        yield one


@pytest.fixture(scope="module")
def ada(proxy: SharedProxy, tmp_path_factory: pytest.TempPathFactory) -> Person:
    return Person(proxy, tmp_path_factory.mktemp("ada"))


@pytest.fixture(scope="module")
def home(ada: Person) -> Machine:
    return ada.at_home()


def test_a_token_and_a_device_are_all_that_another_machine_needs(
    ada: Person, home: Machine
) -> None:
    made = home.done(
        *("token", "create", "report", "--expires", "2d", "--dataset", "people"),
        **password_of(home),
    )
    token = made.out.strip()
    assert re.fullmatch(r"ersr1_[A-Za-z0-9_-]{43}", token)
    assert token not in made.err
    device = home.done("device", "create", "report", **password_of(home)).out.strip()

    strange = ada.machine()
    refused = look(strange, ERS_TOKEN=token, ERS_EMAIL="", ERS_PASSWORD="")
    assert refused.code == 4
    assert "device" in refused.err
    told = {"ERS_TOKEN": token, "ERS_DEVICE": device, "ERS_EMAIL": "", "ERS_PASSWORD": ""}
    assert [line["data"]["name"] for line in look(strange, **told).lines] == ["Ada"]
    written = strange.ers(
        *("record", "create", "--file", "-", "--schema", "person"), typed='{"name": "B"}', **told
    )
    assert written.code != 0
    assert "is read-only" in written.err
    assert "--scope write" in written.err

    (listed,) = home.done("token", "list").lines
    assert (listed["name"], listed["scope"]) == ("report", "read")
    assert listed["last_used"] is not None
    assert listed["expires"] in home.done("token", "list", "-o", "csv").out
    assert "is revoked" in home.done("token", "revoke", listed["id"]).out
    ended = look(strange, **told)
    assert ended.code == 4
    assert "revoked" in ended.err
    assert names_seen(home) == ["Ada"]


def test_a_token_is_made_with_the_password_and_not_by_a_login_alone(home: Machine) -> None:
    for typed in ("", "not the password\n"):
        refused = home.ers("token", "create", "x", typed=typed, ERS_PASSWORD="", ERS_EMAIL="")
        assert refused.code != 0
        assert "password" in refused.err
    assert "x" not in [line["name"] for line in home.done("token", "list").lines]


def test_a_token_without_a_password_says_what_to_set(home: Machine) -> None:
    refused = home.ers("token", "create", "report")
    assert (refused.code, refused.out) == (2, "")
    assert "error: creating an API token needs your password" in refused.err
    assert (
        "hint: set ERS_PASSWORD, or give the password on the next line of standard input"
        in refused.err
    )


def test_what_is_no_lifetime_or_belongs_to_an_access_token_is_said(home: Machine) -> None:
    for wrong in ("30", "30m", "0d", "-1d", "d", "400d"):
        refused = home.ers("token", "create", "x", "--expires", wrong, **password_of(home))
        assert refused.code != 0, wrong
    limited = home.ers("token", "create", "--scope", "write")
    assert limited.code != 0
    assert "ers token create NAME" in limited.err
    assert home.done("token", "create").out.count(".") == 2  # an access token, as before


def test_the_python_client_takes_a_token(ada: Person, home: Machine) -> None:
    device = home.done("device", "create", "python", **password_of(home)).out.strip()
    account = ada.account
    with Client(
        ada.proxy.url, email=account.email, password=account.password, device=device
    ) as client:
        reading = client.create_token("reads")
        writing = client.create_token("writes", scope="write", datasets=["people"])
        assert reading.token not in repr(reading)
        assert {token.name for token in client.tokens()} >= {"reads", "writes"}
        with Client(ada.proxy.url, token=reading.token, device=device) as reader:
            assert [one["name"] for one in reader.schema("person").search()] == ["Ada"]
            with pytest.raises(NotAllowed, match="is read-only"):
                reader.schema("person").ingest([{"name": "Grace"}])
        with Client(ada.proxy.url, token=writing.token, device=device) as writer:
            assert writer.schema("person").ingest([{"name": "Grace"}]) == 1
            client.revoke_token(writing.id)
            with pytest.raises(NotAuthenticated):
                writer.schema("person").ingest([{"name": "Grace"}])
