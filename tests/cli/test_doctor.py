"""``ers doctor`` finds what is wrong, says what to do, and exits with the code of the failure."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.cli.command_group import CommandLimits
from encrypted_records.index.segments.merge_policy import Tier
from encrypted_records.model.records import MAX_MINI_RECORDS
from tests.cli.command import Ers, Said, environment
from tests.proxy.test_retention import stating
from tests.support.front import running_front
from tests.support.proxies import running_proxy
from tests.support.service import Account, Service, free_ports, running_service

DEFINITION = json.dumps({"type": "object", "properties": {"name": {"type": "string"}}})


STORE = ("record", "create", "--file", "-", "--schema")


@pytest.fixture
def schema(ers: Ers) -> str:
    return new_schema(ers)


def new_schema(ers: Ers) -> str:
    """The slug of a schema with a record."""
    slug = f"patient-{secrets.token_hex(4)}"
    ers.done("dataset", "create", "--name", slug, "--slug", slug)
    ers.done(
        *("schema", "create", "--dataset", slug, "--name", slug, "--slug", slug, "--file", "-"),
        typed=DEFINITION,
    )
    ers.done(*STORE, slug, typed='{"name": "Ada"}')
    return slug


def by_check(said: Said) -> dict[str, Any]:
    return {line["check"]: line for line in said.lines}


def test_of_all_schemas_each_that_is_well_has_one_line(ers: Ers, schema: str) -> None:
    found = by_check(ers.done("doctor"))
    assert f"index {schema}" not in found
    said = found[f"schema {schema}"]["found"]
    assert said.startswith("1 records, counted in ")
    assert said.endswith("none to merge; 0 deleted rows, not erased yet")


def test_where_all_is_well_it_says_so_and_counts_what_is_there(ers: Ers, schema: str) -> None:
    said = ers.done("doctor", "--schema", schema)

    found = by_check(said)
    checks_of_the_service = [
        *("version", "disk", "service", "clock", "account", "access", "keyring")
    ]
    of_schema = [f"{what} {schema}" for what in ("schema", "index", "erasure")]
    assert list(found) == [*checks_of_the_service, *of_schema]
    assert found[f"index {schema}"]["found"] == "1 segment, 1 of them small; none to merge"
    assert found[f"schema {schema}"]["found"].startswith("1 records, counted in ")
    assert {line["state"] for line in said.lines} <= {"ok", "warning"}
    assert "ers keyring backup" in found["keyring"]["hint"]


def test_people_get_a_line_for_each_finding_and_one_for_each_hint(ers: Ers, schema: str) -> None:
    said = ers.done("doctor", "--schema", schema, "--output", "table")
    assert f"ok       schema {schema}" in said.out
    assert "                    hint: without a backup" in said.out


def test_a_proxy_that_does_not_answer_is_found(ers: Ers) -> None:
    (port,) = free_ports(1)
    said = ers("doctor", "--proxy-url", f"http://127.0.0.1:{port}")
    assert said.code == 5
    assert by_check(said)["service"]["state"] == "failed"
    assert "ers up" in by_check(said)["service"]["hint"]


def test_without_a_login_everything_that_needs_none_is_checked(
    ers: Ers, running: Service, tmp_path: Path
) -> None:
    ers.unset("ERS_EMAIL", "ERS_PASSWORD")
    ers.set(XDG_STATE_HOME=str(tmp_path))
    said = ers("doctor")
    assert said.code == 4
    found = by_check(said)
    assert list(found) == ["version", "disk", "service", "clock", "account"]
    assert [found[name]["state"] for name in found] == ["ok", "ok", "ok", "ok", "failed"]
    assert "ers login" in found["account"]["hint"]

    (port,) = free_ports(1)
    said = ers("doctor", "--proxy-url", f"http://127.0.0.1:{port}")
    assert (said.code, by_check(said)["service"]["state"]) == (5, "failed")

    said = ers("doctor", "--schema", "x", "--why", "a = 1")
    assert (said.code, "you are not logged in" in said.err) == (4, True)


def test_an_api_in_the_place_of_a_proxy_is_found(ers: Ers, running: Service) -> None:
    said = ers("doctor", "--proxy-url", running.base_url)
    assert said.code != 0
    assert "is not a proxy" in by_check(said)["service"]["found"]


def test_bad_credentials_are_found(ers: Ers) -> None:
    ers.set(ERS_PASSWORD="wrong-horse-battery")
    said = ers("doctor")
    assert said.code == 4
    assert "wrong-horse" not in said.out + said.err


def test_a_schema_that_is_not_there_is_found(ers: Ers) -> None:
    said = ers("doctor", "--schema", "nothing")
    assert said.code == 3
    assert by_check(said)["schema"]["state"] == "failed"


def test_clocks_that_differ_are_found(ers: Ers, schema: str) -> None:
    strict = CommandLimits(clocks_differ=-1.0)
    found = by_check(ers.done("doctor", "--schema", schema, limits=strict))["clock"]
    assert found["state"] == "warning"
    assert "NTP" in found["hint"]


def test_a_proxy_whose_clock_differs_from_the_apis_is_named_with_how_far(
    ers: Ers, running: Service, tmp_path: Path
) -> None:
    with (
        running_front(running.base_url) as front,
        front.telling(stating(3 / 24)),
        running_proxy(front.url, tmp_path / "own") as proxy,
    ):
        ers.set(ERS_PROXY_URL=proxy.url)
        found = by_check(ers("doctor"))["clock"]
        assert found["state"] == "warning"
        assert found["found"] == "this machine's clock is 3 hours behind the API's"
        assert "The clock of the proxy's machine is 3 hours behind the API's." in ers("status").err


def test_a_disk_that_is_nearly_full_is_found(ers: Ers, running: Service, schema: str) -> None:
    ers.set(ERS_DATA_DIR=str(running.data_dir))
    all_of_it = CommandLimits(little_space=shutil.disk_usage(running.data_dir).total + 1)
    found = by_check(ers.done("doctor", "--schema", schema, limits=all_of_it))["disk"]
    assert found["state"] == "warning"
    assert str(running.data_dir) in found["found"]


def test_segments_that_could_be_merged_are_found_and_the_hint_merges_them(
    ers: Ers, running: Service, tmp_path: Path
) -> None:
    with running_proxy(running.base_url, tmp_path / "data") as proxy:
        told = environment(running, running.new_account())
        ers.set(**told | {"ERS_PROXY_URL": proxy.url})
        slug = new_schema(ers)
        for name in ("Alan", "Grace"):
            ers.done(*STORE, slug, typed=json.dumps({"name": name}))
        proxy.services.merger.tiers = (Tier(MAX_MINI_RECORDS, 2),)

        found = by_check(ers.done("doctor", "--schema", slug))[f"index {slug}"]

        assert found["state"] == "warning"
        assert found["found"].startswith("3 segments, 3 of them small; some to merge")
        what, _, command = found["hint"].partition(": ers ")
        assert what == "merge them"
        assert "3 segments merged, 1 left" in ers.done(*command.split()).out
        mended = by_check(ers.done("doctor", "--schema", slug))[f"index {slug}"]
        assert (mended["state"], mended["hint"]) == ("ok", "")


@pytest.fixture
def other_proxy(running: Service, tmp_path: Path) -> Iterator[Service]:
    """A proxy for the same API whose folder holds other keys."""
    with running_service(
        tmp_path / "data", command="proxy", environment={"ERS_BASE_URL": running.base_url}
    ) as proxy:
        yield proxy


def test_a_key_that_the_keyring_has_not_is_found(
    ers: Ers, schema: str, account: Account, other_proxy: Service
) -> None:
    ers.set(**environment(other_proxy, account))
    ers("keyring", "backup", "--force")  # makes a keyring, and not the one of the records
    said = ers("doctor", "--schema", schema)

    assert said.code in (1, 4)
    failed = [line for line in said.lines if line["state"] == "failed"]
    # The roster has the keys of the other keyring, too, so that no name is found by it.
    assert [one["check"] for one in failed[:2]] == ["schema", "people"]
    # It says so of each schema that the keyring does not open.
    keys = failed[2:]
    assert keys
    assert all(key["check"].startswith("schema ") for key in keys)
    assert all("ers keyring restore" in key["hint"] for key in keys)


def test_a_condition_that_finds_nothing_is_explained_by_its_comparisons(
    ers: Ers, schema: str
) -> None:
    asked = 'name = "ADA" and name contains "Ad"'
    said = ers.done("doctor", "--schema", schema, "--why", asked)
    spelled, part, whole = said.lines
    assert (spelled["comparison"], spelled["count"], spelled["folded"]) == ("name eq", 0, 1)
    assert (part["comparison"], part["count"]) == ("name contains", 1)
    assert (whole["comparison"], whole["count"]) == ("all of it", 0)
    assert ers("doctor", "--why", asked).code != 0


def test_a_folder_that_may_not_be_looked_at_does_not_end_the_checks(
    ers: Ers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "disk_usage", refuse)
    found = by_check(ers.done("doctor"))
    assert found["disk"]["state"] == "warning"
    assert found["disk"]["found"].endswith("cannot be read: permission denied")
    assert found["clock"]["state"] == "ok"
