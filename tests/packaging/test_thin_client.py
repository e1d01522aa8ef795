"""The client and the commands work where the large packages of the sides are not installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.service import Service, clean_environment

#: Python started with these packages missing, then a program.
WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

GONE = {"numpy", "psycopg", "re2", "cryptography", "zstandard", "pyroaring", "rapidfuzz"}

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in GONE:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
STORE_AND_FIND = """
from encrypted_records import Client

url, email, password = sys.argv[1:]
client = Client(url, email=email, password=password)
ships = client.create_dataset("Ships").create_schema(
    "Ship",
    {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "built": {"type": "integer", "minimum": 1500, "maximum": 2100},
        },
    },
)
ships.ingest([{"name": "Beagle", "built": 1820}, {"name": "Vega", "built": 1872}])
first = ships.search("built > 1850", order_by=["name"]).first()
print(first["name"], ships.get(first.id)["built"], ships.search("name ~ /^B/").first()["name"])
"""
COMMAND = """
from encrypted_records.cli import main
sys.exit(main.run(sys.argv[1:]))
"""


def python(program: str, *arguments: str, **told: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + program, *arguments],
        env=clean_environment(**told),
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


@pytest.fixture(scope="module")
def service(services: Callable[[str], Service]) -> Service:
    return services("sqlite")


def test_a_program_stores_and_finds_records(service: Service) -> None:
    account = service.new_account()
    done = python(STORE_AND_FIND, service.proxy_url, account.email, account.password)
    assert (done.stdout, done.stderr) == ("Vega 1872 Beagle\n", "")


def test_commands_import_files_and_search_them(service: Service, tmp_path: Path) -> None:
    account = service.new_account()
    file = tmp_path / "people.csv"
    file.write_text("name;born\nAda;10.12.1815\nAlan;23.06.1912\n")
    told = {
        "ERS_PROXY_URL": service.proxy_url,
        "ERS_EMAIL": account.email,
        "ERS_PASSWORD": account.password,
        "ERS_CONFIG": "/dev/null",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    done = python(COMMAND, "import", str(file), "--dataset", "lab", "--yes", **told)
    assert done.returncode == 0, done.stderr
    found = python(
        *(COMMAND, "record", "search", "--schema", "people", "born < 1900-01-01", "-o", "csv"),
        **told,
    )
    assert found.stdout.splitlines()[1].startswith("Ada,1815-12-10,")
