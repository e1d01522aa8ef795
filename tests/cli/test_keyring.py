"""``ers keyring`` against a real proxy, on a real terminal where one is needed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.command import Ers, Said, run_here
from tests.cli.command import environment as environment_of
from tests.cli.terminals import at_terminal
from tests.support.service import Account, Service, call, clean_environment, state_beside
from tests.support.store import Store, new_schema


@pytest.fixture
def account(running: Service) -> Account:
    return running.new_account()


@pytest.fixture
def ers_here(
    running: Service,
    account: Account,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ers:
    own = {"XDG_STATE_HOME": state_beside(running, tmp_path / "state")}
    return Ers(monkeypatch, capsys, **environment_of(running, account) | own)


def environment(service: Service, account: Account) -> dict[str, str]:
    return clean_environment(**environment_of(service, account))


def ers(service: Service, account: Account, *arguments: str, typed: str = "", **told: str) -> Said:
    return run_here(environment(service, account) | told, "keyring", *arguments, typed=typed)


def shown_to(service: Service, account: Account, **told: str) -> str:
    """What the keyring is, as a person sees it."""
    said = ers(service, account, "get", "--output", "table", **told)
    assert said.code == 0, said.err
    return said.out


def backup_on_a_terminal(service: Service, account: Account, *, wrong: bool) -> tuple[int, str]:
    """Back up as somebody at a terminal does; the exit code and all that was shown."""
    told = environment(service, account) | {"TERM": "dumb"}
    with at_terminal(told, "keyring", "backup") as terminal:
        terminal.answer("press Enter", "")
        for _ in range(1 if wrong else 3):
            terminal.expect("Word ")
            terminal.expect(": ")
            words = re.findall(r"^ ?\d+  ([a-z]+)$", terminal.shown, re.MULTILINE)
            place = int(re.findall(r"Word (\d+): ", terminal.shown)[-1])
            terminal.type("wrong" if wrong else words[place - 1])
        return terminal.end(), terminal.shown


def test_a_backup_shows_the_words_and_asks_for_three_of_them(
    running: Service, account: Account
) -> None:
    code, shown = backup_on_a_terminal(running, account, wrong=False)

    assert code == 0, shown
    assert len(re.findall(r"^ ?\d+  [a-z]+$", shown, re.MULTILINE)) == 24
    assert len(re.findall(r"Word \d+: ", shown)) == 3
    assert "is confirmed" in shown
    assert re.search(r"^backup +confirmed$", shown_to(running, account), re.MULTILINE)


def test_a_wrong_word_leaves_the_backup_unconfirmed(running: Service, account: Account) -> None:
    code, shown = backup_on_a_terminal(running, account, wrong=True)

    assert code == 2
    assert "not confirmed" in shown
    assert "not confirmed" in shown_to(running, account)


def test_the_words_go_to_a_terminal_only_unless_forced(running: Service, account: Account) -> None:
    refused = ers(running, account, "backup")
    forced = ers(running, account, "backup", "--force")

    assert refused.code == 2
    assert refused.out == ""
    assert "--force" in refused.err
    assert forced.code == 0
    assert len(forced.out.splitlines()) == 24
    assert "not confirmed" in forced.err


def test_a_phrase_is_restored_from_stdin_and_replaces_only_when_told_to(
    running: Service, account: Account
) -> None:
    backup = ers(running, account, "backup", "--force").out
    phrase = " ".join(re.findall("[a-z]+", backup))
    other = running.new_account()

    theirs = re.findall("[a-z]+", ers(running, running.new_account(), "backup", "--force").out)

    mistyped = ers(running, other, "restore", typed=phrase + " more")
    first = ers(running, other, "restore", typed=phrase + "\n")
    again = ers(running, other, "restore", typed=phrase)
    foreign = ers(running, other, "restore", typed=" ".join(theirs))
    replaced = ers(running, other, "restore", "--replace", typed=" ".join(theirs))
    brought_back = ers(running, other, "restore", "--replace", typed=phrase)

    assert (mistyped.code, first.code) == (2, 0)
    assert "24 words, not 25" in mistyped.err
    assert (again.code, replaced.code, brought_back.code) == (0, 0, 0), replaced.err
    assert foreign.code == 4
    assert "already" in foreign.err
    fingerprint = call("GET", f"{running.proxy_url}/api/keyring/", auth=account.auth).json()[
        "fingerprint"
    ]
    assert fingerprint in first.out
    assert fingerprint in shown_to(running, other)


def test_a_program_reads_what_the_keyring_is_and_which_schemas_it_opens(
    running: Service, account: Account
) -> None:
    definition = {"type": "object", "properties": {"name": {"type": "string"}}}
    schema = new_schema(running, account, definition)
    Store(running, account, schema).ingest([{"name": "Ada"}])

    found = json.loads(ers(running, account, "get", "--output", "json").out)

    whole = call("GET", f"{running.proxy_url}/api/keyring/", auth=account.auth).json()
    assert {name: found[name] for name in whole} == whole
    (sealed,) = found["schemas"]
    assert (sealed["url"], sealed["key_version"], sealed["held"]) == (schema, 1, True)


def test_before_there_is_a_keyring_show_says_how_one_comes_about(
    running: Service, account: Account
) -> None:
    shown = ers(running, account, "get")

    assert shown.code == 3
    assert shown.err.startswith("error: you have no keyring here yet\nhint: ")
    assert "restore it before you store anything: ers keyring restore" in shown.err


def test_a_passphrase_that_nobody_gives_is_called_missing(
    running: Service, account: Account, tmp_path: Path
) -> None:
    told = ers(running, account, "backup", "--file", str(tmp_path / "keyring.backup"), typed="")
    assert told.code == 2
    assert told.err.startswith("error: missing: passphrase of the backup\nhint: give it as the")
    assert list(tmp_path.iterdir()) == []


def test_without_credentials_and_terminal_the_way_out_is_named(tmp_path: Path) -> None:
    done = run_here(clean_environment(), "keyring", "get", folder=tmp_path)
    assert done.code == 4
    assert "ERS_EMAIL and ERS_PASSWORD" in done.err


def test_a_rotation_asks_first_then_wants_a_backup_of_the_new_version_alone(
    running: Service, account: Account
) -> None:
    assert backup_on_a_terminal(running, account, wrong=False)[0] == 0

    refused = ers(running, account, "rotate", typed="n\n")
    rotated = ers(running, account, "rotate", "--yes")

    assert refused.code != 0
    assert rotated.code == 0, rotated.err
    assert "version 2" in rotated.out
    shown = shown_to(running, account)
    assert re.search(r"^1 .* confirmed", shown, re.MULTILINE)
    assert re.search(r"^2 .* not confirmed", shown, re.MULTILINE)
    words = ers(running, account, "backup", "--force")
    assert len(words.out.splitlines()) == 24
    assert "version 2" in words.err
    everything = ers(running, account, "backup", "--force", "--all")
    phrases = " ".join(re.findall("[a-z]+", everything.out))
    assert len(phrases.split()) == 48
    other = running.new_account()
    assert "2 versions" in ers(running, other, "restore", typed=phrases).out
    assert ers(running, other, "backup").err.startswith("error: the recovery phrase is shown on")
    assert "confirmed" in ers(running, other, "backup", "--force").out


def test_a_passphrase_is_given_changed_and_asked_for_after_locking(
    running: Service, account: Account
) -> None:
    assert ers(running, account, "backup", "--force").code == 0
    assert ers(running, account, "lock").code == 4

    given = ers(running, account, "passphrase", typed="first secret\n")
    changed = ers(running, account, "passphrase", typed="first secret\nsecond secret\n")

    assert (given.code, changed.code) == (0, 0), given.err + changed.err
    assert re.search("^protected by +a passphrase$", shown_to(running, account), re.M)
    assert ers(running, account, "lock").code == 0
    locked = ers(running, account, "get")
    assert locked.code == 4
    assert "ers keyring unlock" in locked.err
    unlocked = ers(running, account, "unlock", typed="second secret\n")
    assert unlocked.code == 0, unlocked.err
    assert ers(running, account, "get").code == 0
    refused = ers(running, account, "passphrase", typed="first secret\nthird\n")
    assert refused.code == 4
    output = "".join(one.out + one.err for one in (given, changed, locked, unlocked, refused))
    assert not re.search("first|second|third", output)
    assert not re.search("(first|second) secret", running.log)


def test_a_backup_file_restores_a_keyring_for_another_account_with_its_passphrase_alone(
    running: Service, account: Account, tmp_path: Path
) -> None:
    ers(running, account, "backup", "--force")
    ers(running, account, "rotate", "--yes")
    file = tmp_path / "keyring.backup"
    other = running.new_account()

    written = ers(running, account, "backup", "--file", str(file), typed="of the file\n")

    assert written.code == 0, written.err
    assert file.stat().st_mode & 0o777 == 0o600
    assert re.search("^backup +confirmed$", shown_to(running, account), re.MULTILINE)
    content = file.read_bytes()
    again = ers(running, account, "backup", "--file", str(file), typed="another\n")
    assert again.code == 2
    assert file.read_bytes() == content
    wrong = ers(running, other, "restore", "--file", str(file), typed="not this one\n")
    assert wrong.code == 2
    assert "backup cannot be used" in wrong.err
    (tmp_path / "damaged").write_bytes(content[:-1])
    damaged = ers(
        running, other, "restore", "--file", str(tmp_path / "damaged"), typed="of the file\n"
    )
    assert damaged.code == 2
    trial = ("restore", "--dry-run", "--file", str(file))
    tried = ers(running, account, *trial, typed="of the file\n")
    assert tried.code == 0, tried.err
    assert "The backup would restore the keyring" in tried.out
    # The other account has no keyring to compare it with.
    assert ers(running, other, *trial, typed="of the file\n").code != 0
    restored = ers(running, other, "restore", "--file", str(file), typed="of the file\n")
    assert restored.code == 0, restored.err
    assert "2 versions" in restored.out
    fingerprint = shown_to(running, account).split()[1]
    assert fingerprint in shown_to(running, other)
    missing = ers(running, other, "restore", "--file", str(tmp_path / "none"), typed="x\n")
    assert (missing.code, "cannot be read" in missing.err) == (2, True)


def test_the_login_that_is_kept_serves_the_keyring_too(
    ers_here: Ers, running: Service, account: Account
) -> None:
    ers_here.done("login", "--email", account.email)
    ers_here.unset("ERS_EMAIL", "ERS_PASSWORD")
    assert ers_here("keyring", "get").code == 3

    assert len(ers_here.done("keyring", "backup", "--force").out.splitlines()) == 24

    fingerprint = call("GET", f"{running.proxy_url}/api/keyring/", auth=account.auth).json()[
        "fingerprint"
    ]
    assert ers_here.done("keyring", "get").one["fingerprint"] == fingerprint
    ers_here.done("logout")
    assert ers_here("keyring", "get").code == 4


def test_ctrl_c_at_a_question_ends_the_command_at_once(running: Service, account: Account) -> None:
    with at_terminal(environment(running, account), "keyring", "rotate") as terminal:
        terminal.expect("[y/N]")
        terminal.interrupt()
        assert terminal.end() == 130
