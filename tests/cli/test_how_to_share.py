"""The commands of docs/how-to/invite-a-colleague.md, as they stand there, by two people on two
machines, and what each may do after each of them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import Said, environment, run_line
from tests.support.service import Account, Service, clean_environment, running_service, state_beside

DOCUMENT = Path(__file__).parents[2] / "docs" / "how-to" / "invite-a-colleague.md"
BIN = Path(sys.executable).parent
DEFINITION = '{"type": "object", "properties": {"name": {"type": "string"}}}'
#: Before these, a terminal asks whether it is meant.
ASKED = ("ers share remove ", "ers organization member delete ")


def blocks() -> list[list[str]]:
    """The lines of each block of commands, without those for organizations of before."""
    text = DOCUMENT.read_text().partition("## One keyring")[0]
    return [one.splitlines() for one in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)]


class Machine:
    """A folder and a shell; of a person with a proxy, or of a program that has neither."""

    def __init__(self, api: str, folder: Path, **told: str) -> None:
        self.folder = folder
        folder.mkdir()
        self.told = clean_environment(
            XDG_STATE_HOME=str(folder / "state"),
            PATH=f"{BIN}:{os.environ['PATH']}",
            ERS_BASE_URL=api,
            ERS_DATA_DIR=str(folder / "inline"),
            ERS_CONFIG=os.devnull,
        )
        self.told |= told

    @classmethod
    def of(cls, proxy: Service, account: Account, folder: Path) -> Machine:
        told = environment(proxy, account)
        told["XDG_STATE_HOME"] = state_beside(proxy, folder.with_name(f"{folder.name}.state"))
        return cls(proxy.base_url, folder, **told)

    @property
    def email(self) -> str:
        return self.told["ERS_EMAIL"]

    def __call__(self, line: str, typed: str = "") -> Said:
        return run_line(self.told, line, self.folder, typed)

    def done(self, line: str, typed: str = "") -> Said:
        said = self(line, typed)
        assert said.code == 0, f"{line}\n{said.out}\n{said.err}"
        return said

    def names(self) -> list[str]:
        found = self.done("ers record search --schema patient").lines
        return sorted(one["data"]["name"] for one in found)

    def store(self, name: str) -> Said:
        return self("ers record create --file - --schema patient", f'{{"name": "{name}"}}')


@pytest.fixture
def ada(running: Service, tmp_path: Path) -> Machine:
    made = Machine.of(running, running.new_account(), tmp_path / "ada")
    (made.folder / "patient.json").write_text(DEFINITION)
    (made.folder / "people.csv").write_text("name\nEmmy\n")
    made.done("ers dataset create --name Medical --slug medical")
    made.done("ers schema create --dataset medical --name Patient --file patient.json")
    assert made.store("Ada").code == 0
    return made


@pytest.fixture
def grace(running: Service, tmp_path: Path) -> Iterator[Machine]:
    with running_service(
        tmp_path / "other", command="proxy", environment={"ERS_BASE_URL": running.base_url}
    ) as proxy:
        yield Machine.of(proxy, running.new_account(), tmp_path / "grace")


def test_two_people_do_what_the_document_says(
    running: Service, ada: Machine, grace: Machine
) -> None:
    invite, accept, settle, search, write, listing, asking, answering, service, out = (
        [line.replace("grace@example.org", grace.email) for line in block] for block in blocks()
    )

    (line,) = invite
    invited = ada.done(line)
    invitation = invited.err.rpartition("ers share accept ")[2].split()[0]
    (line,) = accept
    grace.done(line.replace("ID", invitation), typed=invited.out)
    assert grace("ers record search --schema patient").code != 0
    let_in, listed = (ada.done(line).out for line in settle)
    assert f"{grace.email} was admitted." in let_in
    assert grace.email in listed

    (line,) = search
    assert [one["data"]["name"] for one in grace.done(line).lines] == ["Ada"]
    assert grace.store("Grace").code != 0
    (line,) = write
    ada.done(line)
    assert grace.store("Grace").code == 0
    assert ada.names() == grace.names() == ["Ada", "Grace"]

    ada.done("ers dataset create --name Payroll --slug payroll")
    ada.done("ers schema create --dataset payroll --name Salary --file patient.json")
    ada.done("ers record create --file - --schema salary", '{"name": "Emmy"}')
    (line,) = listing
    ada.done(line)
    found, ask, withdraw = asking
    requests, share, decline = answering
    assert "payroll" in grace.done(found).out
    grace.done(ask)
    assert grace.email in ada.done(requests).out
    grace.done(withdraw)
    assert grace.email not in ada.done(requests).out
    grace.done(ask)
    ada.done(decline)
    assert grace(ask).code != 0  # for a week
    assert grace("ers record search --schema salary").code != 0
    ada.done(share)
    grace.done("ers record search --schema salary")

    create, upload = service
    ada.done(create)
    program = Machine(running.base_url, ada.folder.with_name("program"))
    for name in ("nightly.key", "people.csv"):
        (ada.folder / name).rename(program.folder / name)
    program.done(upload)
    assert ada.names() == ["Ada", "Emmy", "Grace"]

    for line in out:
        assert line.startswith(ASKED)
        assert "add --yes to confirm" in ada(line).err
        assert "may have kept copies of earlier records" in ada.done(f"{line} --yes").out
        assert grace("ers record search --schema patient").code != 0
    assert grace.email not in ada.done("ers share list").out
