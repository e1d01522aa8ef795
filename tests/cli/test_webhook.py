"""``ers webhook``: created with a token of its own, listed, resumed and deleted."""

from __future__ import annotations

import json

from tests.cli.command import Ers
from tests.cli.test_record import DEFINITION, create_schema
from tests.support.eventually import eventually
from tests.support.service import Account

#: No name leads there.
TARGET = "https://hooks.invalid/patients?key=confidential"


def test_a_webhook_is_created_listed_resumed_and_deleted(ers: Ers, account: Account) -> None:
    schema = create_schema(ers, DEFINITION)
    row = json.dumps([{"name": "Ada"}])
    ers.done("record", "create", "--schema", schema, "--file", "-", typed=row)
    ers.set(ERS_PASSWORD=account.password)
    said = ers.done("webhook", "create", TARGET, "--schema", schema)
    assert said.out.startswith("whsec_")
    (shown,) = json.loads(ers.done("webhook", "list", "-o", "json").out)
    assert (shown["target"], shown["status"]) == (TARGET, "active")
    assert "secret" not in shown
    tokens = json.loads(ers.done("token", "list", "-o", "json").out)
    (own,) = [one for one in tokens if one["name"] == f"webhook {schema}"]
    assert own["scope"] == "read"
    assert len(own["datasets"]) == 1
    assert shown["id"] in said.err
    assert own["id"] in said.err
    resumed = ers.done("webhook", "resume", shown["id"], "--renew")
    assert "active" in resumed.out
    ers.done("webhook", "delete", shown["id"])
    assert json.loads(ers.done("webhook", "list", "-o", "json").out) == []


def test_an_address_that_is_refused_leaves_no_token(ers: Ers, account: Account) -> None:
    schema = create_schema(ers, DEFINITION)
    row = json.dumps([{"name": "Ada"}])
    ers.done("record", "create", "--schema", schema, "--file", "-", typed=row)
    ers.set(ERS_PASSWORD=account.password)
    refused = ers("webhook", "create", "https://127.0.0.1/", "--schema", schema)
    assert refused.code == 2
    assert "not a public one" in refused.err
    refused = ers("webhook", "create", "http://127.0.0.1:8099/", "--schema", schema)
    assert (refused.code, "must begin with https://" in refused.err) == (2, True)
    assert "hint: start the proxy with --webhooks any" in refused.err
    refused = ers("webhook", "create", "https://example.org:0/", "--schema", schema)
    assert (refused.code, "port of at least 1" in refused.err) == (2, True)
    assert "hint" not in refused.err, "it has none of its own"
    tokens = json.loads(ers.done("token", "list", "-o", "json").out)
    assert [one for one in tokens if one["name"] == f"webhook {schema}"] == []


def test_the_doctor_names_a_webhook_that_is_stopped(ers: Ers, account: Account) -> None:
    schema = create_schema(ers, DEFINITION)
    row = json.dumps([{"name": "Ada"}])
    ers.done("record", "create", "--schema", schema, "--file", "-", typed=row)
    ers.set(ERS_PASSWORD=account.password)
    ers.done("webhook", "create", TARGET, "--schema", schema)
    (shown,) = json.loads(ers.done("webhook", "list", "-o", "json").out)
    tokens = json.loads(ers.done("token", "list", "-o", "json").out)
    (own,) = [one for one in tokens if one["name"] == f"webhook {schema}"]
    ers.done("token", "revoke", own["id"])
    ers.done("record", "create", "--schema", schema, "--file", "-", typed=row)

    def stopped() -> bool:
        (webhook,) = json.loads(ers.done("webhook", "list", "-o", "json").out)
        return bool(webhook["status"] == "stopped")

    eventually(stopped, "it is stopped", pause=0.05)
    said = ers("doctor", "--schema", schema)
    (found,) = [line for line in said.lines if line["check"] == f"webhook {shown['id']}"]
    assert (said.code, found["state"], found["found"]) == (1, "failed", "stopped: bad_token")
    assert found["hint"].endswith(f"ers webhook resume {shown['id']} --renew")
    ers.done("webhook", "delete", shown["id"])
    assert "webhook" not in ers.done("doctor", "--schema", schema).out
