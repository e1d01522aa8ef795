"""People at a shared proxy, and what they do there by commands."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

from tests.cli.command import Said
from tests.support.shared_proxy import Machine, SharedProxy

DEFINITION = json.dumps({"type": "object", "properties": {"name": {"type": "string"}}})
_numbers = itertools.count()


class Person:
    """Somebody with an account, and as many machines as they like."""

    def __init__(self, proxy: SharedProxy, folder: Path) -> None:
        self._folder = folder
        self.proxy = proxy
        self.account = proxy.api.new_account()
        proxy.make_room()  # for the keyring that is theirs

    @property
    def email(self) -> str:
        return self.account.email

    def machine(self, *, operators: bool = False, logged_in: bool = False) -> Machine:
        """One that nobody used before; or, with the door, that of the proxy's operator."""
        state = self._folder / f"machine-{next(_numbers)}"
        if operators:
            state = self.proxy.state
        machine = Machine(self.proxy.url, self.account, state)
        if logged_in:
            machine.log_in()
        return machine

    def at_home(self) -> Machine:
        """A machine on which they have logged in and stored a record."""
        machine = self.machine(logged_in=True)
        store(machine)
        return machine


def store(machine: Machine) -> None:
    """The first records of an account: a schema ``person`` with one in it."""
    machine.done("dataset", "create", "--name", "People", "--slug", "people")
    machine.done(
        *("schema", "create", "--dataset", "people", "--name", "Person", "--slug", "person"),
        *("--file", "-"),
        typed=DEFINITION,
    )
    machine.done("record", "create", "--file", "-", "--schema", "person", typed='{"name": "Ada"}')


def look(machine: Machine, **told: str) -> Said:
    return machine.ers("record", "search", "--schema", "person", **told)


def names_seen(machine: Machine, **told: str) -> list[str]:
    said = look(machine, **told)
    assert said.code == 0, said.err
    return [line["data"]["name"] for line in said.lines]


def code_from(machine: Machine, *arguments: str, typed: str = "", **told: str) -> str:
    said = machine.done("device", "code", *arguments, typed=typed, **told)
    assert re.fullmatch(r"[0-9A-Z]{4}-[0-9A-Z]{4}\n", said.out)
    return said.out


def words_of(machine: Machine, **told: str) -> str:
    said = machine.done("keyring", "backup", "--force", "--all", **told)
    return " ".join(re.findall("[a-z]+", said.out))


def secret_on(machine: Machine) -> str:
    """The device secret that a machine keeps."""
    (kept,) = json.loads(
        (machine.state / "encrypted-records" / "devices.json").read_text()
    ).values()
    return str(kept["secret"])


def password_of(machine: Machine) -> dict[str, str]:
    return {"ERS_PASSWORD": machine.account.password}
