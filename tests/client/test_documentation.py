"""The programs in docs/python.md run, one after the other, as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.client.test_proxy_client import account, running
from tests.support.service import Account, Service, clean_environment

__all__ = ["account", "running"]

DOCUMENT = Path(__file__).parents[2] / "docs" / "python.md"


def test_every_program_runs_and_says_what_it_should(running: Service, account: Account) -> None:
    programs = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    said = [run(program, running, account) for program in programs]

    assert len(said) == 4
    assert said[0].splitlines()[0].endswith(" Alan")
    assert said[0].splitlines()[1] == "2 records"
    assert said[1].splitlines()[-1] == "completed 1000 of 1000"
    assert said[2] == ""
    assert said[3].endswith(" not_found\n")


def run(program: str, service: Service, account: Account) -> str:
    # Only where and who it is differ from what a reader would type.
    assert "http://127.0.0.1:8080" in program
    told = f"EMAIL, PASSWORD = {account.email!r}, {account.password!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", told + program.replace("http://127.0.0.1:8080", service.proxy_url)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
