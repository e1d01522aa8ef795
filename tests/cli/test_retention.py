"""``ers retention``: what goes, and letting it go, as cron does."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path

import pytest

from encrypted_records.proxy import process
from encrypted_records.proxy.settings import Overrides
from tests.cli.command import Ers
from tests.support.front import Asked, Reply, running_front
from tests.support.proxies import running_proxy
from tests.support.second_proxy import with_keyrings
from tests.support.service import Service

DEFINITION = {
    "type": "object",
    "formats": "enforced",
    "retention": {"days": 30, "field": "seen"},
    "properties": {"seen": {"type": "string", "format": "date"}},
}


def day(ago: int) -> str:
    return (datetime.now(UTC) - timedelta(days=ago)).date().isoformat()


@pytest.fixture
def visits(ers: Ers) -> str:
    """The slug of a dataset and of its schema, with two records that go and one that stays; beside
    it a schema without a rule."""
    slug = f"visits-{secrets.token_hex(4)}"
    ers.done("dataset", "create", "--name", slug, "--slug", slug)
    plain = {name: one for name, one in DEFINITION.items() if name != "retention"}
    for name, definition in ((slug, DEFINITION), (f"{slug}-plain", plain)):
        ers.done(
            *("schema", "create", "--dataset", slug, "--name", name, "--slug", name),
            *("--file", "-"),
            typed=json.dumps(definition),
        )
    records = [{"seen": day(40)}, {"seen": day(400)}, {"seen": day(20)}]
    ers.done("record", "create", "--schema", slug, "--file", "-", typed=json.dumps(records))
    return slug


def test_what_goes_is_shown_first_then_deleted_and_the_count_is_said(ers: Ers, visits: str) -> None:
    shown = ers.done("retention", "get", visits, "--output", "table")
    assert "Records expire 30 days after seen: 2 records so far" in shown.out + shown.err
    (tried,) = ers.done("retention", "run", visits, "--dry-run").lines
    assert (tried["schema"], tried["records"]) == (visits, 2)
    (done,) = ers.done("retention", "run", visits).lines
    assert (done["schema"], done["deleted"]) == (visits, 2)
    assert len(ers.done("record", "list", "--schema", visits).lines) == 1
    table = ers.done("retention", "run", "--output", "table")
    assert visits in table.out
    assert f"{visits}-plain" not in table.out


@pytest.mark.parametrize("hidden", ["the rule", "the schema"])
def test_an_api_hides_no_rule_by_what_it_lists(
    ers: Ers, visits: str, running: Service, tmp_path: Path, hidden: str
) -> None:
    def hide(asked: Asked, reply: Reply) -> Reply:
        path, _, _ = asked.path.partition("?")
        if path != "/api/schemas/":
            return reply
        told = json.loads(reply.body)
        for result in told["results"]:
            result["schema"].pop("retention", None)
        if hidden == "the schema":
            told["results"] = [result for result in told["results"] if result["slug"] != visits]
        return reply.with_body(json.dumps(told).encode())

    with (
        running_front(running.base_url) as front,
        running_proxy(front.url, with_keyrings(running, tmp_path / "other")) as proxy,
        front.telling(hide),
    ):
        ers.set(ERS_PROXY_URL=proxy.url, XDG_STATE_HOME=str(tmp_path / "state"))
        done = {line["schema"]: line["deleted"] for line in ers.done("retention", "run").lines}
    assert done[visits] == 2


def test_a_schema_that_cannot_be_read_is_named_and_the_others_are_done(
    ers: Ers, visits: str, running: Service, tmp_path: Path
) -> None:
    """As the neighbour of a schema that alone was shared."""
    hidden = ers.done("schema", "get", f"{visits}-plain").one["url"]

    def close(asked: Asked) -> Reply | None:
        return Reply(404, {}, b"") if asked.path.startswith(hidden) else None

    with (
        running_front(running.base_url) as front,
        running_proxy(front.url, with_keyrings(running, tmp_path / "other")) as proxy,
    ):
        front.invent = close
        ers.set(ERS_PROXY_URL=proxy.url, XDG_STATE_HOME=str(tmp_path / "state"))
        said = ers.done("retention", "run")
        assert f"1 schema cannot be read here: {visits}-plain" in said.err
        assert {line["schema"]: line["deleted"] for line in said.lines}[visits] == 2
        assert ers("retention", "run", hidden).code != 0


def test_a_schema_without_a_rule_is_said_and_the_others_are_done_all_the_same(
    ers: Ers, visits: str
) -> None:
    plain = f"{visits}-plain"
    shown = ers.done("retention", "get", plain, "--output", "table")
    assert "Records are kept until somebody deletes them." in shown.out + shown.err
    ended = ers("retention", "run", plain, visits, "--output", "csv")
    assert ended.code != 0
    assert "no retention" in ended.err
    assert visits in ended.out
    assert len(ers.done("record", "list", "--schema", visits).lines) == 1


def test_a_rule_that_lets_records_go_at_once_is_taken_only_by_who_says_so(
    ers: Ers, visits: str
) -> None:
    plain = f"{visits}-plain"
    records = json.dumps([{"seen": day(40)}, {"seen": day(1)}])
    ers.done("record", "create", "--schema", plain, "--file", "-", typed=records)
    change = ("schema", "change", plain, "--file", "-", "--apply")
    refused = ers(*change, typed=json.dumps(DEFINITION))
    assert refused.code != 0
    assert "1 record would expire at once" in refused.err
    assert len(ers.done("record", "list", "--schema", plain).lines) == 2
    longer = {**DEFINITION, "retention": {"days": 300, "field": "seen"}}
    assert ers.done(*change, typed=json.dumps(longer)).one["applied"]
    assert ers.done(*change, "--yes", typed=json.dumps(DEFINITION)).one["applied"]


def test_a_clock_that_jumped_ahead_is_named_with_the_command_that_confirms_it(
    ers: Ers, visits: str, running: Service, tmp_path: Path
) -> None:
    days = 0

    def clock() -> float:
        return time.time() + days * 86_400

    def later(_asked: Asked, reply: Reply) -> Reply:
        headers = {name: one for name, one in reply.headers.items() if name.lower() != "date"}
        return replace(reply, headers=headers | {"Date": formatdate(clock(), usegmt=True)})

    with (
        running_front(running.base_url) as front,
        running_proxy(
            front.url,
            with_keyrings(running, tmp_path / "other"),
            overrides=Overrides(clock=clock),
        ) as proxy,
        front.telling(later),
    ):
        ers.set(ERS_PROXY_URL=proxy.url, XDG_STATE_HOME=str(tmp_path / "state"))
        assert "clock" not in ers.done("status").err
        proxy.settle(process.CLOCK)  # it looks at the clock before that jumps
        days = 50
        for command in (
            ("retention", "run", visits, "--dry-run"),
            ("retention", "get", visits, "--output", "table"),
        ):
            said = ers.done(*command).err
            assert "jumped ahead by 50 days" in said
            assert "ers retention run --clock-is-right" in said
        assert "jumped ahead" in ers.done("status").err
        held = ers("retention", "run", visits)
        assert held.code == 4
        assert f"1 record of {visits} held back: this machine's clock jumped ahead" in held.err
        assert "ers retention run --clock-is-right" in held.err
        assert "?clock_is_right" not in held.err
        (done,) = held.lines
        assert (done["deleted"], done["held"]) == (2, 1)
        (done,) = ers.done("retention", "run", visits, "--clock-is-right").lines
        assert (done["deleted"], done["held"]) == (1, 0)
        assert "jumped ahead" not in ers.done("status").err
