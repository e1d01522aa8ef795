"""The programs in docs/python.md run, one after the other, as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.service import Account, Service, clean_environment

DOCUMENT = Path(__file__).parents[2] / "docs" / "python.md"


def test_every_program_runs_and_says_what_it_should(
    running: Service, account: Account, tmp_path: Path
) -> None:
    programs = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    said = [run(program, running, account, tmp_path).splitlines() for program in programs]

    assert len(said) == 13
    assert said[0][0].endswith(" Alan")
    assert said[0][1].startswith("2 records ")
    assert said[1] == ["1000 stored", "completed"]
    assert said[2] == [
        "2 ['born', 'n']",
        "2 [('Name', 'text', 0), ('Umsatz', 'number, 2 decimals', 1),"
        " ('Seit', 'date, dd.mm.yyyy', 0)]",
        "True 1",
    ]
    assert said[3] == ["99 201"]
    assert said[4] == ["1"]
    assert said[5][0] == "name 0 0 None"
    assert said[5][1].startswith("age 0 None the field has no values there")
    assert said[6] == ["99 1", "2 20"]
    assert re.fullmatch(r"\d+ records at version \d+", said[7][0])
    assert said[8] == ["commit True", "completed", "1 True ['Paris']"]
    assert said[9] == ["201"]
    assert said[10][0].endswith(" not_found")
    assert said[11] == ["api False True"]
    assert said[12] == ["People we know"]


def run(program: str, service: Service, account: Account, folder: Path) -> str:
    # Only where and who it is differ from what a reader would type.
    assert "http://127.0.0.1:8080" in program
    told = f"EMAIL, PASSWORD = {account.email!r}, {account.password!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", told + program.replace("http://127.0.0.1:8080", service.proxy_url)],
        env=clean_environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_program_in_the_readme_runs(running: Service, account: Account, tmp_path: Path) -> None:
    root = DOCUMENT.parents[1]
    (program,) = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    (tmp_path / "examples").symlink_to(root / "examples")
    said = run(program, running, account, tmp_path).splitlines()
    ages = [int(line.split()[0]) for line in said]
    assert len(ages) == 16
    assert ages == sorted(ages, reverse=True)
