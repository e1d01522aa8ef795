"""The commands of the tutorial work as they stand, and give what it says that they give."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import environment
from tests.support.service import Service, clean_environment, running_service, state_beside

DOCUMENT = Path(__file__).parents[2] / "docs" / "tutorial.md"
BIN = Path(sys.executable).parent


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service with a database of its own: in that of others a city may stand for another reason,
    or their megabytes of ciphertext contain a short word by chance."""
    with running_service(tmp_path / "clinic-data") as service:
        yield service


def test_the_tutorial_works(service: Service, tmp_path: Path) -> None:
    """In one shell, after the steps that start the service and make the account."""
    told = environment(service, service.new_account())
    told |= {"XDG_STATE_HOME": state_beside(service, tmp_path / "state")}
    del told["ERS_OUTPUT"]
    text = DOCUMENT.read_text()
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "echo ====\n".join(blocks)],
        cwd=tmp_path,
        env=clean_environment(**told, PATH=f"{BIN}:{os.environ['PATH']}"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.split("====\n")
    assert len(said) == len(blocks)
    made, _, _, definition, stored, sealed, searched, asked = said

    assert made.startswith("name,born,city,diagnosis,temperature\n")
    assert json.loads(definition)["properties"]["city"] == {"type": "string", "padTo": 31}
    assert json.loads(stored)["processed"] == 1000
    (record,) = json.loads(sealed)
    assert set(record["fields"]) == {"name", "born", "city", "diagnosis", "temperature"}
    # Names and cities are nowhere in the database; the names of fields are in the definition.
    found = [line for line in searched.splitlines() if not line.endswith(":0")]
    assert found == ["no Ada Borg", "no Bergen", "diagnosis"]

    answers = json.JSONDecoder()
    count, _ = answers.raw_decode(asked)
    claimed = re.search(r"The first one says (\d+)\.", text)
    assert claimed
    assert str(count if isinstance(count, int) else count["count"]) == claimed[1]
    assert "Bergen" in asked.partition("avg(temperature)")[2]
