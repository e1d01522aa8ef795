"""Every command shows an example, and every example works: as it stands, in a shell.

Around the examples is the world of which they speak: an account ada@example.org, an organization
acme with a dataset medical, a schema patient with people in it, and files beside them.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.cli.command import environment, run_line
from tests.cli.tree import commands, examples
from tests.support.service import Service, clean_environment, running_service, state_beside

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"
BIN = Path(sys.executable).parent
#: These run until they are ended, ask on a terminal, or need somebody else; other tests do that.
NOT_RUN = {
    *("ers webhook", "ers up", "ers api", "ers proxy", "ers demo", "ers mcp", "ers keyring rotate"),
    *("ers user email", "ers user delete"),
    *(f"ers user second-factor {name}" for name in ("add", "renew-codes", "remove")),
    *("ers organization invitation accept", "ers organization member delete"),
    *(
        "ers schema change",
        "ers verify",
        "ers import",
        "ers organization recover",
        "ers share",
        "ers service",
        "ers backup",
        "ers restore",
        "ers storage",
        "ers subject",
    ),
}

#: The first record founds the organization: who belongs to it is signed from then on (ers share).
WITHOUT_RECORDS = ("ers organization invitation ", "ers organization member update")

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "city": {"type": "string"},
        "height": {"type": "number", "minimum": 0, "maximum": 3, "precision": 2},
    },
    "required": ["name"],
}
PEOPLE = [
    {"name": "Ada", "age": 36, "city": "Oslo", "height": 1.65},
    {"name": "Alan", "age": 41, "city": "Rome"},
    {"name": "Grace", "age": 85, "city": "Oslo", "height": 1.68},
]
CSV = "name,age,city,height\nAda,36,Oslo,1.65\nAlan,41,Rome,\n"
FILES = {
    "patient.json": json.dumps(DEFINITION),
    "visit.json": json.dumps(DEFINITION),
    "patients.json": json.dumps(PEOPLE),
    "people.csv": CSV,
    "record.json": json.dumps({"data": PEOPLE[0]}),
    "new-password.txt": "another-violet-harbour\n",
}
#: What the examples of the keyring ask for, in an order in which they make sense.
TYPED = {
    "ers keyring backup --file keyring.backup": "paper, scissors, stone\n",
    "ers keyring restore --dry-run --file keyring.backup": "paper, scissors, stone\n",
    "ers keyring restore < phrases.txt": "",
    "ers keyring get": "",
    "ers keyring get --output json": "",
    "ers keyring passphrase": "stone, paper, scissors\n",
    "ers keyring unlock": "stone, paper, scissors\n",
    "ers keyring lock": "",
}
WORLD = """
ers organization update --name Acme
ers dataset create --name Medical --slug medical
ers dataset create --name Archive --slug archive
ers schema create --dataset medical --name Patient --slug patient --file patient.json
ers schema create --dataset medical --name Draft --slug draft --file patient.json
ers schema create --dataset medical --name Copy --slug copy --file patient.json
ers record create --schema patient --file patients.json
"""

ALL = list(commands())
SHOWN = [(path, line) for path, one in ALL for line in examples(one.help or "")]


def is_run(path: str) -> bool:
    if path.startswith("ers api ") and path != "ers api owner":  # what it sends, not the API
        return True
    return not any(f"{path} ".startswith(f"{one} ") for one in NOT_RUN)


def lines_of_the_document() -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of its own: examples change and end what they like."""
    with running_service(tmp_path_factory.mktemp("examples") / "data") as one:
        yield one


class Shell:
    """A shell in a folder with the files of the examples, used by one account."""

    def __init__(self, service: Service, folder: Path) -> None:
        self.service, self.folder = service, folder
        self.account = service.new_account()
        self.uploads = 0
        (folder / "config.toml").touch()
        for name, text in FILES.items():
            (folder / name).write_text(text)
        self.told = clean_environment(
            **environment(service, self.account)
            | {"XDG_STATE_HOME": state_beside(service, folder / "state")},
            PATH=f"{BIN}:{os.environ['PATH']}",
            ERS_BASE_URL=service.base_url,
            ERS_DATA_DIR=str(folder / "inline"),
            ERS_CONFIG=str(folder / "config.toml"),
        )

    def run(self, line: str, typed: str = "") -> str:
        """What a line writes to stdout; it must succeed."""
        line = line.replace("ada@example.org", self.account.email)
        line = line.replace("https://records.example.org", self.service.base_url)
        if "import people.csv" in line:  # each of a day of its own: the same one is refused
            self.uploads += 1
            (self.folder / "people.csv").write_text(f"{CSV}Eve {self.uploads},19,Oslo,\n")
        if "$VERSION" in line:
            read = json.loads(self.run('ers record get "$RECORD" -o json'))
            self.told["VERSION"] = str(read["version"])
        said = run_line(self.told, line, self.folder, typed)
        assert said.code == 0, f"{line}\n{said.out}\n{said.err}"
        assert "Traceback" not in said.err
        return said.out

    def prepare(self) -> None:
        for line in WORLD.strip().splitlines():
            self.run(line)
        found = self.run("ers record search --schema patient --limit 1")
        self.told["RECORD"] = json.loads(found)["id"]
        made = self.run("ers record create --file patients.json --schema patient").splitlines()
        self.told["OLD"], self.told["OLDER"] = (json.loads(one)["id"] for one in made[:2])
        job = self.run("ers import people.csv --schema patient --yes")
        self.told["JOB"] = json.loads(job)["job_id"]
        self.told["LOST"] = self.run("ers device create lost").split("_")[1]
        self.run("ers token create lost")
        self.told["TOKEN_ID"] = json.loads(self.run("ers token list"))["id"]
        self.told["SCHEMA"] = json.loads(self.run("ers schema get patient"))["url"]
        spare = self.run("ers dataset create --name Spare --slug spare")
        self.told["SPARE"] = json.loads(spare)["url"]
        self.told["DATASET"] = json.loads(self.run("ers dataset get medical"))["url"]
        del self.told["ERS_OUTPUT"]  # examples are tried as readers have them


@pytest.fixture(scope="module")
def shell(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    made = Shell(service, tmp_path_factory.mktemp("shell"))
    made.prepare()
    return made


@pytest.mark.parametrize("path", [path for path, one in ALL if not isinstance(one, click.Group)])
def test_every_command_shows_an_example_of_itself(path: str) -> None:
    shown = [line for where, line in SHOWN if where == path]
    assert shown
    assert all(re.search(rf"\b{path}\b", line) for line in shown)


def test_the_keyrings_examples_work_with_what_they_ask_for(
    service: Service, tmp_path: Path
) -> None:
    shell = Shell(service, tmp_path)
    words = re.findall("[a-z]+", shell.run("ers keyring backup --force"))
    (tmp_path / "phrases.txt").write_text(" ".join(words))

    said = {line: shell.run(line, typed) for line, typed in TYPED.items()}

    shown = json.loads(said["ers keyring get"])
    assert shown["backup_confirmed"]  # by the file
    assert shown["fingerprint"] in said["ers keyring restore < phrases.txt"]
    assert "is unlocked" in said["ers keyring unlock"]
    examples = {line for path, line in SHOWN if path.startswith("ers keyring") and is_run(path)}
    assert examples == set(TYPED)


@pytest.mark.parametrize(
    ("path", "line"),
    [one for one in SHOWN if is_run(one[0]) and one[1] not in TYPED and "--listen" not in one[1]],
)
def test_the_example_works(shell: Shell, path: str, line: str, tmp_path: Path) -> None:
    used = shell
    if path == "ers user password":  # it would shut the others out
        used = Shell(shell.service, tmp_path)
    elif path.startswith(WITHOUT_RECORDS):
        used = Shell(shell.service, tmp_path)
        sent = used.run("ers organization invitation create guest@example.org")
        used.told["SENT"] = json.loads(sent)["id"]
    elif "--forget" in line:
        # Else there is no older key; and repeats of what was stored under one are refused after it.
        used = Shell(shell.service, tmp_path)
        used.prepare()
        used.run("ers share rotate medical")
    used.run(line)


def test_the_examples_of_the_document_work_one_after_the_other(
    service: Service, tmp_path: Path
) -> None:
    shell = Shell(service, tmp_path)
    shell.prepare()
    for line in lines_of_the_document():
        shell.run(line)


def test_no_command_takes_a_password_or_token_as_an_argument() -> None:
    secret = re.compile("password|passphrase|token|secret")
    flags = [flag for _, one in ALL for param in one.params for flag in param.opts]
    assert [flag for flag in flags if secret.search(flag)] == []
