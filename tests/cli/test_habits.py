"""What people and scripts expect of a command line: forms, questions, pipes, requests."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from pathlib import Path

import pytest

from encrypted_records.cli.input.files import LineCounter
from tests.cli.command import Ers, environment
from tests.cli.terminals import COMMAND, at_terminal
from tests.support import forked
from tests.support.eventually import eventually
from tests.support.service import Account, Service, clean_environment, state_beside

DEFINITION = json.dumps(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
        },
        "required": ["name"],
    }
)
PEOPLE = json.dumps([{"name": "Ada\nLovelace", "age": 36}, {"name": "Alan"}])


@pytest.fixture
def piped(ers: Ers) -> Ers:
    """The command as a script has it, which chooses no form."""
    ers.unset("ERS_OUTPUT")
    return ers


@pytest.fixture
def schema(ers: Ers) -> str:
    slug = f"s{secrets.token_hex(4)}"
    ers.done("dataset", "create", "--name", slug, "--slug", slug)
    ers.done(
        *("schema", "create", "--dataset", slug, "--name", slug, "--slug", slug, "--file", "-"),
        typed=DEFINITION,
    )
    return slug


@pytest.fixture
def people(ers: Ers, schema: str) -> str:
    ers.done("record", "create", "--schema", schema, "--file", "-", typed=PEOPLE)
    return schema


@pytest.fixture
def told(running: Service, account: Account, tmp_path: Path) -> dict[str, str]:
    """The environment of a process of its own."""
    found = clean_environment(
        **environment(running, account)
        | {"XDG_STATE_HOME": state_beside(running, tmp_path / "own"), "TERM": "dumb"},
        ERS_CONFIG=str(tmp_path / "config.toml"),
    )
    del found["ERS_OUTPUT"]
    return found


# --- forms ------------------------------------------------------------------------------------


def test_a_pipe_gets_json_with_a_blank_after_the_colon_and_lists_as_arrays(
    piped: Ers, people: str
) -> None:
    said = piped.done("schema", "list")
    assert f'"slug": "{people}"' in said.out
    assert people in [load["slug"] for load in json.loads(said.out)]
    assert isinstance(json.loads(piped.done("schema", "get", people).out), dict)

    found = json.loads(piped.done("record", "search", "--schema", people).out)
    assert [one["data"]["name"] for one in found] == ["Ada\nLovelace", "Alan"]
    assert json.loads(piped.done("record", "search", "--schema", people, "age > 99").out) == []


def test_what_may_have_any_length_is_a_line_for_each_unless_somebody_chose(
    piped: Ers, people: str
) -> None:
    every = ("record", "search", "--schema", people, "--all")

    assert len(piped.done(*every).lines) == 2
    piped.set(ERS_OUTPUT="json")
    assert len(json.loads(piped.done(*every).out)) == 2
    assert piped.done(*every, "--output", "csv").out.startswith("name,age,leave_out:id\n")
    piped.set(ERS_OUTPUT="xml")
    assert piped(*every).code == 2


def test_the_word_of_other_programs_for_json_is_answered_with_ours(piped: Ers) -> None:
    said = piped("dataset", "list", "--json")
    assert said.code == 2
    assert "hint: JSON is: --output json" in said.err


def test_an_empty_table_says_that_there_is_nothing(ers: Ers, schema: str) -> None:
    said = ers.done("record", "list", "--schema", schema, "-o", "table")
    assert (said.out, said.err) == ("", "no records\n")


# --- questions --------------------------------------------------------------------------------


def test_no_to_a_question_is_no_ctrl_c_and_says_what_was_not_done(
    told: dict[str, str], people: str
) -> None:
    with at_terminal(
        told, "record", "delete", "--schema", people, "--matching", "age = 36"
    ) as terminal:
        terminal.answer("Delete 1 record? [y/N]", "n")
        assert terminal.end() == 7
    assert "Cancelled; nothing was deleted." in terminal.shown

    with at_terminal(told, "record", "delete", "--schema", people, "--matching", "age = 36") as one:
        one.expect("[y/N]")
        one.interrupt()
        assert one.end() == 130


def test_what_cannot_be_deleted_is_found_out_before_anybody_is_asked(ers: Ers, people: str) -> None:
    for kind, has in (("dataset", "has 1 schema"), ("schema", "has records")):
        said = ers(kind, "delete", people)  # without a terminal, and without --yes
        assert said.code == 4
        assert has in said.err
        assert "--cascade" in said.err
        assert "?cascade" not in said.err
    ers.done("dataset", "delete", people, "--cascade", "--yes")


def test_an_export_says_how_many_records_and_overwrites_only_when_told(
    ers: Ers, people: str, told: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "people.csv"
    export = ("record", "export", "--schema", people, "--file", str(file))

    assert ers.done(*export).err == f"Wrote 2 records to {file}.\n"
    whole = file.read_text()
    file.write_text("mine")
    said = ers(*export)
    assert (said.code, "already exists" in said.err, file.read_text()) == (2, True, "mine")
    with at_terminal(told, *export) as terminal:
        terminal.answer("Overwrite it? [y/N]", "n")
        assert terminal.end() == 7
    assert file.read_text() == "mine"
    assert "Wrote 2 records" in ers.done(*export, "--force").err
    assert file.read_text() == whole
    one = ers.done("record", "export", "--schema", people, "age = 36", "--format", "csv")
    assert one.err == "Wrote 1 record.\n"


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_records_of_an_export_are_counted_however_it_is_cut(size: int) -> None:
    text = b'a,b\n"x\n""y""\n",2\r\n"\n"\n,\n'
    lines = LineCounter("csv")
    for at in range(0, len(text), size):
        lines.add(text[at : at + size])
    assert lines.records == 3


# --- accounts ---------------------------------------------------------------------------------


def link_of(service: Service, email: str) -> str:
    found = service.link_for(email)
    return (
        f"{service.proxy_url}{found.path}?user_id={found.user_id}&timestamp={found.timestamp}"
        f"&signature={found.signature}"
    )


def test_an_account_is_opened_and_confirmed_in_one_go_and_weak_passwords_are_told_at_once(
    told: dict[str, str], running: Service
) -> None:
    email = f"{secrets.token_hex(5)}@example.org"
    for name in ("ERS_EMAIL", "ERS_PASSWORD"):
        del told[name]
    with at_terminal(told, "register", "--confirm") as terminal:
        terminal.answer("E-mail", email)
        terminal.answer("Name of the organization", f"Harvard {email}")
        terminal.answer("Password", "short")
        terminal.expect("fewer than 12 characters")
        terminal.answer("Password", "password1234")  # long, and as common as can be
        terminal.answer("Repeat it", "password1234")
        terminal.expect("too common")
        terminal.answer("Password", "violet-harbour-49-lantern")
        terminal.answer("Repeat it", "violet-harbour-49-lantern")
        terminal.expect("Link from the message")
        terminal.type(link_of(running, email))
        assert terminal.end() == 0
    assert "Its organization is harvard-" in terminal.shown


def test_an_account_is_confirmed_and_its_password_reset_by_links_without_a_terminal(
    piped: Ers, running: Service
) -> None:
    email = f"{secrets.token_hex(5)}@example.org"
    piped.unset("ERS_EMAIL")
    piped.set(ERS_PASSWORD="123456789012")
    register = ("register", "--email", email, "--organization", f"Org {email}")
    said = piped(*register)
    assert (said.code, "digits only" in said.err) == (2, True)
    piped.set(ERS_PASSWORD="violet-harbour-49-lantern")
    piped.done(*register)

    link = link_of(running, email)
    assert piped("verify", "https://example.org/?user_id=1").code == 2
    piped.set(ERS_EMAIL=email)
    assert "Its organization is org-" in piped.done("verify", link).out
    assert piped("verify", link).code == 2  # works once

    assert "a message with a link" in piped.done("user", "reset-password").out
    wait_for_another(running, email, link)
    new = link_of(running, email)
    reset = ("user", "reset-password", "--link")
    assert piped(*reset, typed=f"{new}\nshort\n").code == 2
    piped.done(*reset, typed=f"{new}\nanother-violet-harbour\n")
    assert piped("user", "get").code == 4
    piped.set(ERS_PASSWORD="another-violet-harbour")
    assert json.loads(piped.done("user", "get").out)["email"] == email


def test_an_address_is_checked_before_a_password_is_asked_for(told: dict[str, str]) -> None:
    del told["ERS_PASSWORD"]
    with at_terminal(told, "register", "--email", "grace", "--organization", "Mark I") as terminal:
        terminal.expect("--email: this is not an e-mail address")
        assert terminal.end() == 2
    assert "Password" not in terminal.shown


def test_what_the_service_refuses_is_named_by_the_option_of_the_command(piped: Ers) -> None:
    piped.set(ERS_PASSWORD="violet-harbour-49-lantern")
    address = f"{'a' * 300}@example.org"
    said = piped("register", "--email", address, "--organization", "Mark I")
    assert "  --email: " in said.err
    said = piped("register", "--email", "ada@example.org", "--organization", "x" * 999)
    assert "  --organization: " in said.err


def wait_for_another(service: Service, email: str, link: str) -> None:
    eventually(lambda: link_of(service, email) != link, "a further message comes")


def test_a_login_says_to_which_organizations_it_leads(
    piped: Ers, account: Account, running: Service
) -> None:
    assert "You belong to organization-" in piped.done("login", "--email", account.email).out
    piped.done("logout")


# --- pipes and requests -----------------------------------------------------------------------


def test_a_reader_who_goes_ends_a_command_quietly(told: dict[str, str], people: str) -> None:
    # More than a pipe holds, so that the writer finds out.
    rows = json.dumps([{"name": "x" * 1000} for _ in range(100)])
    run = [*COMMAND, "record", "create", "--schema", people, "--file", "-"]
    subprocess.run(run, input=rows.encode(), env=told, check=True, stdout=subprocess.DEVNULL)
    reading, writing = os.pipe()
    process = forked.Forked(
        [*COMMAND, "record", "search", "--schema", people, "--all"],
        env=told,
        stdout=writing,
        stderr=subprocess.PIPE,
    )
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (141, b"")


def test_any_request_is_sent_as_whoever_is_logged_in(piped: Ers, people: str) -> None:
    path = json.loads(piped.done("schema", "get", people).out)["url"]
    api = ("api", "POST", "/api/records/search/")

    found = piped.done(*api, "--field", f"schema={path}", "--field", "count=true")
    by_body = piped.done(*api, "--data", "-", typed=json.dumps({"schema": path, "count": True}))
    assert json.loads(found.out)["count"] == 2
    assert '"count": 2' in by_body.out
    listed = piped.done("api", "get", "/api/schemas/", "--field", f"slug={people}")
    assert [result["url"] for result in json.loads(listed.out)["results"]] == [path]
    change = piped.done("api", "PATCH", path, "--raw-field", "description=12")
    assert json.loads(change.out)["description"] == "12"
    assert piped("api", "DELETE", path).code == 4
    assert piped.done("api", "DELETE", path, "--query", "cascade=true").out == ""
    assert piped("api", "GET", path).code == 3


def test_a_request_that_changes_keys_shows_a_proof_by_itself(
    piped: Ers, people: str, account: Account, running: Service, tmp_path: Path
) -> None:
    before = json.loads(piped.done("keyring", "get").out)["versions"]
    # Elsewhere: without the door of whoever runs the proxy, from a device that was taken in.
    device = piped.done("device", "create", "other").out.strip()
    piped.set(XDG_STATE_HOME=str(tmp_path / "elsewhere"), ERS_DEVICE=device)
    rotated = piped.done("api", "POST", "/api/keyring/rotate/")
    assert len(json.loads(rotated.out)["versions"]) == len(before) + 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("GET", "/api/../admin/"),
        ("GET", "http://elsewhere.example/api/datasets/"),
        ("GET", "/api/%2e%2e/"),
        ("GET", "/api//datasets/"),
        ("POST", "/api/datasets/", "--data", "{}", "--field", "a=b"),
        ("GET", "/api/datasets/", "-H", "Authorization: Basic eA=="),
        ("GET", "/api/datasets/", "-H", "X-ERS-Device: x"),
        ("POST", "/api/datasets/", "--field", "a"),
        ("TRACE", "/api/datasets/"),
    ],
)
def test_a_request_that_is_none_of_ours_is_not_sent(piped: Ers, arguments: tuple[str, ...]) -> None:
    assert piped("api", *arguments).code == 2


def test_plaintext_goes_to_no_api_by_any_request(piped: Ers, running: Service) -> None:
    said = piped(
        *("api", "POST", "/api/records/ingest/", "--data", "[]"),
        *("--proxy-url", running.base_url),
    )
    assert (said.code, "is not a proxy" in said.err) == (4, True)


def test_status_says_when_it_is_the_api_that_answers(piped: Ers, running: Service) -> None:
    said = piped("status", "--proxy-url", running.base_url)
    assert said.code == 4
    assert "not a proxy" in said.err
    assert json.loads(said.out)["behind_proxy"] is False


def test_help_and_version_are_found_by_the_words_that_people_try(piped: Ers) -> None:
    assert piped.done("help", "record", "search").out == (
        piped.done("record", "search", "--help").out
    )
    assert "Your data" in piped.done("help").out
    assert piped("help", "record", "saerch").code == 2
    assert piped("help", "status", "x").code == 2
    assert piped.done("-V").out == piped.done("--version").out


# --- messages ---------------------------------------------------------------------------------


def test_what_exists_is_said_to_exist_already(ers: Ers, schema: str) -> None:
    said = ers("dataset", "create", "--name", "x", "--slug", schema)
    assert said.code == 4
    assert "already exists" in said.err


def test_a_mistake_in_a_question_names_its_field(ers: Ers, people: str) -> None:
    search = ("record", "search", "--schema", people)
    assert "age: expected a number" in ers(*search, "age > 'x'").err
    where = json.dumps({"field": "aeg", "op": "eq", "value": 3})
    assert "did you mean age? its fields are name, age" in ers(*search, "--where", where).err
    said = ers("record", "aggregate", "--schema", people, "--measure", "median(age)")
    assert "the median is percentile 50" in said.err
    record = ers(
        "record", "create", "--file", "-", "--schema", people, typed='{"name": "x", "age": "y"}'
    )
    assert "age: expected an integer\n" in record.err


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("name, age", "some names have spaces around them"),
        ("name;age", "semicolons"),
        ("name\tage", "tabs"),
    ],
)
def test_a_header_that_does_not_fit_is_told_the_usual_reason(
    ers: Ers, people: str, tmp_path: Path, header: str, reason: str
) -> None:
    file = tmp_path / "people.csv"
    file.write_text(f"{header}\nAda,36\n")
    said = ers("import", "--exact", file, "--schema", people)
    assert said.code in (2, 6)
    assert reason in said.err
    assert "Ada" not in said.err


def test_hints_are_for_whoever_reads_them(ers: Ers, people: str) -> None:
    said = ers("record", "create", "--file", "-", "--schema", people, typed='{"age": 3}')
    assert "listed under errors" not in said.err
