"""``ers share`` and ``ers service``: two people, each with keys of their own."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from encrypted_records import Client
from tests.cli.command import Ers, Said, environment
from tests.proxy.sharing.people import Person
from tests.proxy.sharing.test_coming_back import delete_account
from tests.support import forked
from tests.support.authenticator import with_second_factor
from tests.support.eventually import eventually
from tests.support.front import Asked, Reply, running_front
from tests.support.proxies import running_proxy
from tests.support.service import ERS, Account, Service, call, clean_environment

SCHEMA = '{"type": "object", "properties": {"name": {"type": "string"}}}'


@pytest.fixture
def ada(running: Service) -> Account:
    return running.new_account()


@pytest.fixture
def grace(running: Service) -> Account:
    return running.new_account()


class Two:
    """Commands of two people, of whom one owns the organization."""

    def __init__(self, ers: Ers, running: Service, ada: Account, grace: Account) -> None:
        self.ers, self.running, self.ada, self.grace = ers, running, ada, grace
        self.as_ada()
        self.slug = ers.done("organization", "get").one["slug"]
        ers.done("dataset", "create", "--name", "Medical", "--slug", "medical")

    def as_ada(self) -> Ers:
        self.ers.set(**environment(self.running, self.ada))
        return self.ers

    def as_grace(self) -> Ers:
        self.ers.set(**environment(self.running, self.grace))
        return self.ers

    def invite(self, *more: str) -> tuple[str, str]:
        said = self.as_ada().done("share", "invite", self.grace.email, *more)
        words = said.out.strip()
        assert len(words.split()) == 12
        return said.err.rpartition("ers share accept ")[2].split()[0], words

    def join(self) -> None:
        invitation, words = self.invite("--dataset", "medical")
        self.as_grace().done("share", "accept", invitation, typed=f"{words}\n")
        assert f"{self.grace.email} was admitted." in self.as_ada().done("share", "settle").out

    def people(self) -> dict[str, Any]:
        return {line["name"]: line for line in self.as_ada().done("share", "list").lines}


@pytest.fixture
def two(ers: Ers, running: Service, ada: Account, grace: Account) -> Two:
    return Two(ers, running, ada, grace)


def test_a_reader_is_invited_becomes_a_writer_and_is_removed(two: Two) -> None:
    invitation, words = two.invite("--dataset", "medical", "--role", "reader")
    listed = two.as_ada().done("share", "list")
    assert f"Invited: {two.grace.email}, Medical (reader): waiting, {invitation}" in listed.err

    ers = two.as_grace()
    other = " ".join(reversed(words.split()))
    wrong = ers("share", "accept", invitation, typed=f"{other}\n")
    assert (wrong.code, "nothing was sent; compare the words" in wrong.err) == (2, True)
    ers.done("share", "accept", invitation, typed=f"{words}\n")
    assert ers("share", "list", "--organization", two.slug).code == 3

    ers = two.as_ada()
    assert f"{two.grace.email} was admitted." in ers.done("share", "settle").out
    assert two.people()[two.grace.email]["shares"] == "Medical (reader)"

    ers.done("share", "set", two.grace.email, "--dataset", "medical", "--role", "writer")
    assert two.people()[two.grace.email]["shares"] == "Medical (writer)"
    refused = two.as_grace()("share", "settle", "--organization", two.slug)
    assert "only owners of the organization may do that" in refused.err

    ers = two.as_ada()
    said = ers.done("share", "remove", two.grace.email, "--dataset", "medical", "--yes")
    assert "Medical has a new key" in said.out
    assert "may have kept copies of earlier records" in said.out
    ers.done("share", "rotate", "medical")
    said = ers.done("organization", "member", "delete", two.grace.email, "--yes")
    assert "may have kept copies of earlier records" in said.out
    assert set(two.people()) == {two.ada.email}
    again = ers("share", "set", two.grace.email, "--dataset", "medical", "--role", "reader")
    assert "nobody with that name is in the organization" in again.err


def test_invitations_are_withdrawn_and_those_that_were_declined_are_told(two: Two) -> None:
    invitation, words = two.invite("--dataset", "medical")
    two.as_grace().done("organization", "invitation", "delete", invitation)
    listed = two.as_ada().done("share", "list").err
    assert "Medical (reader): declined, according to the API" in listed
    done = two.ers.done("share", "withdraw", two.grace.email.upper())
    assert done.out.strip() == f"Withdrew the invitation of {two.grace.email}."
    assert "Invited:" not in two.ers.done("share", "list").err
    again = two.ers("share", "withdraw", invitation)
    assert (again.code, "there is no open invitation with that address or id" in again.err) == (
        3,
        True,
    )

    invitation, words = two.invite("--dataset", "medical")
    two.ers.done("share", "withdraw", invitation)
    late = two.as_grace()("share", "accept", invitation, typed=f"{words}\n")
    assert late.code != 0
    assert "admitted" not in two.as_ada().done("share", "settle").out


def test_a_name_that_the_api_gives_to_another_dataset_is_the_signed_one_s(
    two: Two, tmp_path: Path
) -> None:
    two.ers.done("dataset", "create", "--name", "Payroll", "--slug", "payroll")
    listed = {line["slug"]: line["url"] for line in two.ers.done("dataset", "list").lines}

    medical, payroll = (listed[one].split("/")[-2].encode() for one in ("medical", "payroll"))

    def swap(asked: Asked, reply: Reply) -> Reply:
        if "datasets" not in asked.path:
            return reply
        other = reply.body.replace(medical, b"@").replace(payroll, medical)
        return reply.with_body(other.replace(b"@", payroll))

    with (
        running_front(two.running.base_url) as front,
        running_proxy(front.url, tmp_path) as proxy,
    ):
        people = f"{proxy.url}{two.ada.organization}people/"
        shares = [{"dataset": one, "role": "reader"} for one in listed.values()]
        asked = {"email": two.grace.email, "shares": shares}
        signed = call("POST", people, asked, auth=two.ada.auth, headers=proxy.door)
        assert signed.status == 201, signed.body
        two.as_ada().set(ERS_PROXY_URL=proxy.url)
        with front.telling(swap):
            rotated = two.ers.done("share", "rotate", "medical")
        assert "Payroll" not in rotated.out

        def alone(asked: Asked, reply: Reply) -> Reply:
            if not asked.path.startswith("/api/datasets/?"):
                return reply
            told = json.loads(swap(asked, reply).body)
            left = [result for result in told["results"] if payroll.decode() in result["url"]]
            return reply.with_body(json.dumps({**told, "results": left}).encode())

        with front.telling(alone):
            for act in (
                ("invite", "kay@example.org", "--dataset", "medical"),
                ("rotate", "medical"),
                ("remove", two.ada.email, "--dataset", "medical", "--yes"),
            ):
                refused = two.ers("share", *act)
                assert refused.code != 0
                assert (
                    "the API shows as medical a dataset that was signed under the name Payroll"
                    in refused.err
                )
        assert "kay@example.org" not in two.ers.done("share", "list").err


def test_a_removal_counts_when_it_is_signed_whatever_an_api_answers(
    two: Two, tmp_path: Path
) -> None:
    """An API that says that it has removed somebody, and has withdrawn an invitation, has not."""
    with (
        running_front(two.running.base_url) as front,
        running_proxy(front.url, tmp_path) as proxy,
    ):
        two.as_ada().set(ERS_PROXY_URL=proxy.url)
        said = two.ers.done("share", "invite", two.grace.email, "--dataset", "medical")
        words, invitation = said.out, said.err.rpartition("ers share accept ")[2].split()[0]
        two.as_grace().done("share", "accept", invitation, typed=words)
        two.as_ada().set(ERS_PROXY_URL=proxy.url)
        two.ers.done("share", "settle")
        waiting = two.ers.done("share", "invite", "eve@example.org", "--dataset", "medical")
        eves = waiting.err.rpartition("ers share accept ")[2].split()[0]

        def claim(asked: Asked) -> Reply | None:
            if asked.method == "DELETE":
                return Reply(204, {}, b"")
            return Reply(200, {}, b'{"role": "owner"}') if asked.method == "PATCH" else None

        def listed() -> Said:
            return two.ers.done("share", "list")

        front.invent = claim
        member = ("organization", "member")
        two.ers.done(*member, "update", two.grace.email, "--role", "owner")
        assert {line["role"] for line in listed().lines} == {"owner"}
        two.ers.done(*member, "update", two.grace.email, "--role", "member")
        assert "eve@example.org" in listed().err
        two.ers.done("organization", "invitation", "delete", eves)
        assert "eve@example.org" not in listed().err
        for code in ("not_admitted", "key_missing", "identity_replaced"):

            def outside(asked: Asked, reply: Reply, code: str = code) -> Reply:
                """As the proxy answers somebody whose roster is not readable from here."""
                body = json.dumps({"code": code, "detail": "x"}).encode()
                kind = {"Content-Type": "application/problem+json"}
                return Reply(403, kind, body) if asked.path.endswith("/answers/") else reply

            with front.telling(outside):
                refused = two.ers(*member, "delete", two.grace.email, "--yes")
            assert (refused.code, "Removed" in refused.out) == (4, False)
        said = two.ers.done(*member, "delete", two.grace.email.upper(), "--yes")
        assert "may have kept copies of earlier records" in said.out
        assert [line["name"] for line in listed().lines] == [two.ada.email]


def test_an_api_that_asks_for_a_proof_gets_none(two: Two, tmp_path: Path) -> None:
    """It may be the keyring's passphrase, or its words, and is for the proxy alone."""
    body = json.dumps({"code": "proof_needed", "detail": "x"}).encode()

    def ask(asked: Asked, reply: Reply) -> Reply:
        if asked.method != "PATCH":
            return reply
        return Reply(403, {"Content-Type": "application/problem+json"}, body)

    with (
        running_front(two.running.base_url) as front,
        running_proxy(front.url, tmp_path) as proxy,
    ):
        two.as_ada().set(ERS_PROXY_URL=proxy.url)
        front.forget()
        with front.telling(ask):
            said = two.ers("api", "patch", two.ada.organization, "--field", "name=Other")
        sent = [asked.body for asked in front.asked if asked.method == "PATCH"]
    assert (said.code, sent) == (4, [b'{"name":"Other"}'])


def test_whose_account_is_gone_is_told_and_put_out_by_address(two: Two, tmp_path: Path) -> None:
    two.join()
    assert two.people()[two.grace.email]["account"] == ""
    delete_account(Person(two.running, two.grace, tmp_path))
    said = two.as_ada().done("share", "list")
    (listed,) = [line for line in said.lines if line["name"] == "deleted account"]
    assert listed["account"] == "gone"
    assert f"Gone: {listed['id']} no longer has an account, according to the API" in said.err
    assert two.grace.email not in said.out
    two.ers.done("organization", "member", "delete", two.grace.email, "--yes")
    assert "Gone:" not in two.ers.done("share", "list").err
    assert set(two.people()) == {two.ada.email}


def test_who_deletes_the_account_with_its_password_leaves_by_a_signed_entry(two: Two) -> None:
    two.join()
    two.as_grace().done("login", "--email", two.grace.email)
    two.ers.unset("ERS_EMAIL", "ERS_PASSWORD")
    refused = two.ers("user", "delete", "--yes", typed="something else\n")
    assert (refused.code, "is not the current password" in refused.err) == (2, True)
    assert set(two.people()) == {two.ada.email, two.grace.email}
    kept = two.as_ada()("user", "delete", "--yes")
    assert (kept.code, "you are the only owner" in kept.out) == (4, True)

    app = with_second_factor(two.running, two.grace)
    ers = two.as_grace()
    ers.unset("ERS_EMAIL")
    wrong = ers("user", "delete", "--yes", typed=f"{app.stale()}\n")
    assert (wrong.code, set(two.people())) == (2, {two.ada.email, two.grace.email})
    ers = two.as_grace()
    ers.unset("ERS_EMAIL")
    said = ers.done("user", "delete", "--yes", typed=f"{app.code()}\n").out
    for told in (
        f"You leave {two.slug}.",
        "your address stays readable",
        "The account is deleted.",
    ):
        assert told in said
    assert ers("user", "get").code == 4
    assert set(two.people()) == {two.ada.email}
    two.as_ada().done("share", "settle")
    assert "Gone:" not in two.ers.done("share", "list").err


def test_an_address_that_the_api_reports_is_quoted_in_a_command_to_copy(
    two: Two, tmp_path: Path
) -> None:
    told = "$(id)@example.org"

    def move(asked: Asked, reply: Reply) -> Reply:
        if "/members/" not in asked.path:
            return reply
        return reply.with_body(reply.body.replace(two.ada.email.encode(), told.encode()))

    with (
        running_front(two.running.base_url) as front,
        running_proxy(front.url, tmp_path) as proxy,
    ):
        two.as_ada().set(ERS_PROXY_URL=proxy.url)
        two.ers.done("share", "invite", "eve@example.org", "--dataset", "medical")
        with front.telling(move):
            said = two.ers.done("share", "list").err
    assert f"ers organization member update {two.ada.email} --email '{told}'" in said


def test_an_api_that_names_another_member_has_only_the_deleted_account_leave(
    two: Two, tmp_path: Path
) -> None:
    with (
        running_front(two.running.base_url) as front,
        running_proxy(front.url, tmp_path) as proxy,
    ):
        two.as_ada().set(ERS_PROXY_URL=proxy.url)
        said = two.ers.done("share", "invite", two.grace.email, "--dataset", "medical")
        words, invitation = said.out, said.err.rpartition("ers share accept ")[2].split()[0]
        two.as_grace().set(ERS_PROXY_URL=proxy.url)
        two.ers.done("share", "accept", invitation, typed=words)
        two.as_ada().set(ERS_PROXY_URL=proxy.url)
        two.ers.done("share", "settle")
        two.ers.done("organization", "member", "update", two.grace.email, "--role", "owner")
        ids = {line["name"]: line["id"].encode() for line in two.ers.done("share", "list").lines}
        begun = False

        def swap(asked: Asked, reply: Reply) -> Reply:
            nonlocal begun
            begun = begun or (asked.method, asked.path) == ("POST", "/api/accounts/delete/")
            if not begun or asked.path != "/api/users/self/":
                return reply
            return reply.with_body(reply.body.replace(ids[two.ada.email], ids[two.grace.email]))

        with front.telling(swap):
            two.ers.done("user", "delete", "--yes")
        two.as_grace().set(ERS_PROXY_URL=proxy.url)
        listed = two.ers.done("share", "list", "--organization", two.slug).lines
        assert {line["name"] for line in listed} == {two.grace.email}


def test_a_member_becomes_an_owner_by_a_signed_entry_and_doctor_warns_an_only_one(
    two: Two,
) -> None:
    def found() -> list[str]:
        said = two.as_ada().done("doctor", "--organization", two.slug)
        return [line["found"] for line in said.lines if line["check"] == "people"]

    assert found() == []  # alone, the finding about the keyring says it
    two.join()
    (told,) = found()
    assert told.startswith("2 people and services depend on you, the only owner")
    ers = two.as_ada()
    ers.done("organization", "member", "update", two.grace.email, "--role", "owner")
    assert found() == []
    assert two.people()[two.grace.email]["shares"] == "everything"
    refused = ers("share", "set", two.grace.email, "--dataset", "medical", "--role", "reader")
    assert "owners read and write every dataset" in refused.err
    assert (
        "There are no pending changes."
        in two.as_grace().done("share", "settle", "--organization", two.slug).out
    )


def test_a_lost_owners_words_and_the_operator_make_another_owner(
    two: Two, running: Service
) -> None:
    two.join()
    ers = two.as_ada()
    words = ers.done("keyring", "backup", "--force").out
    phrase = " ".join(re.findall(r"[a-z]{3,}", words)[-24:])
    ers = two.as_grace()
    recover = ("organization", "recover", "--organization", two.slug)
    assert ers(*recover, typed=f"{phrase}\n").code != 0
    operator = ("--organization", two.slug, "--data-dir", str(running.data_dir))
    nobody = ers("api", "owner", "nobody@example.org", *operator)
    assert (nobody.code, "there is no such account" in nobody.err) == (3, True)
    done = forked.run([*ERS, "api", "owner", two.grace.email, *operator], clean_environment())
    assert (done.returncode, "ers organization recover" in done.stdout) == (0, True)
    assert f"with the keys of {two.ada.email}" in ers.done(*recover, typed=f"{phrase}\n").out
    assert two.people()[two.grace.email]["role"] == "owner"


def test_older_keys_are_forgotten_by_command_and_by_python(two: Two, running: Service) -> None:
    ers = two.as_ada()
    schema = ("schema", "create", "--file", "-", "--name", "Person", "--dataset", "medical")
    url = ers.done(*schema, typed=SCHEMA).one["url"]
    ers.done("record", "create", "--schema", url, "--file", "-", typed='[{"name": "Emmy"}]')
    ers.done("share", "rotate", "medical")
    forget = ("dataset", "reseal", "medical", "--forget")
    asked = ers(*forget)
    assert (asked.code != 0, "add --yes to confirm" in asked.err) == (True, True)
    assert "can still decrypt that" in asked.out

    def is_done() -> bool:
        """What was sealed again is erased a little later; then it is to be repeated."""
        said = ers(*forget, "--yes")
        assert said.code == 0 or "not erased yet" in said.err
        return said.code == 0

    if ers(*forget, "--yes").code:
        eventually(is_done, "older keys are forgotten", pause=0.2)
    assert "are forgotten." in ers.done(*forget).out
    ers.done("share", "rotate", "medical")
    with Client(running.proxy_url, email=two.ada.email, password=two.ada.password) as client:
        medical = client.dataset(f"{two.slug}/medical")
        told = medical.reseal(forget=True)
        assert told.epoch == 3
        if not told.forgotten:
            eventually(is_done, "older keys are forgotten", pause=0.2)
        assert [one["name"] for one in client.schema(url).search()] == ["Emmy"]
    two.join()
    assert two.as_grace().done("record", "search", "--schema", url).one["data"] == {"name": "Emmy"}


def test_a_service_has_a_string_that_is_printed_once(two: Two) -> None:
    ers = two.as_ada()
    made = ers.done("service", "create", "nightly", "--dataset", "medical", "--expires", "30d")
    assert made.out.startswith("ers1_")
    assert "ers1_" not in made.err
    (one,) = ers.done("service", "list").lines
    assert (one["name"], one["shares"]) == ("nightly", "Medical (reader)")
    assert one["last_used"] == ""
    said = ers.done("service", "delete", "nightly", "--yes")
    assert "Medical has a new key" in said.out
    assert ers.done("service", "list").lines == []


def test_a_service_imports_by_one_variable_and_no_login(
    two: Two, running: Service, tmp_path: Path
) -> None:
    ers = two.as_ada()
    definition = tmp_path / "person.json"
    definition.write_text(SCHEMA)
    ers.done("schema", "create", "--file", definition, "--name", "Person", "--dataset", "medical")
    assert "Signed." in ers.done("schema", "sign", "person", "--yes").out
    assert "There is nothing to sign" in ers.done("schema", "sign", "person").out
    key = ers.done(
        "service", "create", "nightly", "--dataset", "medical", "--role", "writer"
    ).out.strip()
    rows = tmp_path / "rows.csv"
    rows.write_text("name\nEmmy\nGrace\n")
    told = clean_environment(
        ERS_BASE_URL=running.base_url,
        ERS_DATA_DIR=str(tmp_path / "inline"),
        ERS_CONFIG=os.devnull,
        ERS_SERVICE=key,
        XDG_STATE_HOME=str(tmp_path / "state"),
    )
    upload = [*ERS, "import", "--exact", "--inline", str(rows), "--schema", "person"]
    done = forked.run(upload, told)
    assert done.returncode == 0, done.stderr
    assert key not in done.stdout + done.stderr
    assert not list((tmp_path / "inline").rglob("*.keyring"))
    found = two.as_ada().done("record", "search", "--schema", "person").lines
    assert sorted(one["data"]["name"] for one in found) == ["Emmy", "Grace"]
    for listed in (ers.done("service", "list").lines, ers.done("share", "list").lines):
        (used,) = [one["last_used"] for one in listed if one["name"] == "nightly"]
        assert abs(datetime.fromisoformat(used) - datetime.now(UTC)) < timedelta(hours=1)
    said = ers.done("schema", "verify", "person").out
    assert "Compared 2 rows and 1 pages" in said
    # Where an API answers in place of a proxy, nothing is sent.
    ers.set(ERS_SERVICE=key, ERS_PROXY_URL=running.base_url)
    refused = ers("dataset", "list")
    ers.unset("ERS_SERVICE")
    assert (refused.code != 0, "is not a proxy" in refused.err) == (True, True)
    assert "service_key_exposed" not in running.log


def test_a_second_invitation_says_what_it_replaces(two: Two) -> None:
    ers = two.as_ada()
    ers.done("dataset", "create", "--name", "Shop", "--slug", "shop")
    email = two.grace.email
    first = ers.done("share", "invite", email, "--dataset", "medical", "-o", "json")
    made = json.loads(first.out)
    assert len(made["words"].split()) == 12
    assert made["replaced"] is None
    assert "This replaces" not in first.err

    invite = ("share", "invite", email.upper(), "--dataset", "shop", "--role", "writer")
    second = ers.done(*invite, "-o", "ndjson")
    replaced = json.loads(second.out)["replaced"]
    assert replaced["id"] == made["id"]
    assert [(share["name"], share["role"]) for share in replaced["shares"]] == [
        ("Medical", "reader")
    ]
    assert f"This replaces the invitation {made['id']} of " in second.err
    assert "It shared: Medical (reader). To share that as well" in second.err

    ers.done("share", "withdraw", json.loads(second.out)["id"])
    third = ers.done("share", "invite", email, "--dataset", "shop")
    assert made["id"] in third.err or "This replaces" not in third.err
    words = third.out.strip()
    invitation = third.err.rpartition("ers share accept ")[2].split()[0]
    two.as_grace().done("share", "accept", invitation, typed=f"{words}\n")
    two.as_ada().done("share", "settle")
    assert [line["name"] for line in two.as_grace().done("dataset", "list").lines] == ["Shop"]


def test_the_invited_are_told_that_they_wait_for_an_owner(two: Two) -> None:
    told = f"{two.ada.email} has invited you to "
    wait = "an owner's proxy still has to admit you"
    invitation, words = two.invite("--dataset", "medical")
    ers = two.as_grace()
    for typed in (None, f"{words}\n"):
        if typed is not None:
            ers.done("share", "accept", invitation, typed=typed)
        for command in (
            ("dataset", "list"),
            ("schema", "list"),
            ("share", "list"),
            ("organization", "member", "list"),
            ("organization", "invitation", "list"),
        ):
            said = ers.done(*command)
            assert told in said.err and f"ers share accept {invitation}" in said.err, command
            assert wait in said.err
        for asked in (["dataset", "get", "medical"], ["record", "list", "--schema", "person"]):
            refused = ers(*asked)
            assert refused.code == 3
            assert f"hint: {told}" in refused.err and wait in refused.err

    two.as_ada().done("share", "settle")
    ers = two.as_grace()
    assert [line["name"] for line in ers.done("dataset", "list").lines] == ["Medical"]
    assert told not in ers("dataset", "get", "nothing").err
    assert told not in ers.done("organization", "invitation", "list", "--mine").err


def test_a_member_asks_for_a_listed_dataset_and_the_owner_shares_it(two: Two) -> None:
    two.join()
    ers, email = two.as_ada(), two.grace.email
    ers.done("dataset", "create", "--name", "Pay roll", "--slug", "payroll")
    assert ers.done("dataset", "update", "payroll", "--listed").one["listed"] is True

    ers = two.as_grace()
    ers.set(ERS_ORGANIZATION=two.slug)
    [listed] = ers.done("dataset", "list", "--listed").lines
    assert (listed["slug"], listed["name"], listed["request"]) == ("payroll", "Pay roll", "")
    assert listed["owners"] == two.ada.email
    for name in ("payroll", "Pay roll", listed["id"]):
        asked = ers.done("share", "ask", name)
        told = f"Asked for Pay roll as a reader. The owners decide: {two.ada.email}."
        assert asked.out.strip() == told
    assert "payroll" not in [line["slug"] for line in ers.done("dataset", "list").lines]
    [own] = ers.done("share", "requests").lines
    assert (own["email"], own["role"], own["status"]) == (email, "reader", "waiting")
    assert ers.done("dataset", "list", "--listed").lines[0]["request"] == "reader, waiting"
    ers.done("share", "ask", "payroll", "--withdraw")
    assert ers.done("share", "requests").lines == []
    again = ers("share", "ask", "payroll", "--withdraw")
    assert (again.code, "there is no such open request" in again.err) == (3, True)
    ers.done("share", "ask", "payroll", "--role", "writer")

    ers = two.as_ada()
    ers.set(ERS_ORGANIZATION=two.slug)
    said = ers.done("share", "list").err
    command = f"ers share set {email} --dataset payroll --role writer"
    assert f"Asked: {email}, Pay roll (writer): {command}, or ers share decline" in said
    [asked_for] = ers.done("share", "requests").lines
    assert (asked_for["email"], asked_for["dataset"]) == (email, "Pay roll")
    ers.done(*command.split()[1:])
    assert ers.done("share", "requests").lines == []
    assert "payroll" in [line["slug"] for line in two.as_grace().done("dataset", "list").lines]
    assert two.ers.done("dataset", "list", "--listed").lines == []


def test_an_owner_declines_a_request_and_ends_the_listing(two: Two) -> None:
    two.join()
    ers, email = two.as_ada(), two.grace.email
    ers.done("dataset", "create", "--name", "Payroll", "--slug", "payroll")
    ers.done("dataset", "update", "payroll", "--listed", "--description", "Salaries")
    assert ers.done("dataset", "get", "payroll").one["description"] == "Salaries"
    ers = two.as_grace()
    ers.set(ERS_ORGANIZATION=two.slug)
    ers.done("share", "ask", "payroll")
    ers = two.as_ada()
    ers.set(ERS_ORGANIZATION=two.slug)
    declined = ers.done("share", "decline", email, "--dataset", "payroll").out
    assert declined.strip() == f"Declined the request of {email}."
    assert ers.done("share", "requests").lines == []
    ers = two.as_grace()
    said = ers.done("share", "requests")
    assert said.lines[0]["status"].startswith("declined 2")
    assert "declined, according to the API" in said.err
    again = ers("share", "ask", "payroll")
    assert (again.code, "an owner has declined this request" in again.err) == (4, True)
    two.as_ada().done("dataset", "update", "payroll", "--unlisted")
    ers = two.as_grace()
    assert ers.done("dataset", "list", "--listed").lines == []
    refused = ers("share", "ask", "payroll")
    assert (refused.code, "cannot ask for access to this dataset" in refused.err) == (4, True)
    missing = ers("share", "ask", "nothing")
    assert (missing.code, "your organizations have no dataset nothing" in missing.err) == (3, True)
