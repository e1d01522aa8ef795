"""The wheel in empty environments: each extra brings enough, and what is missing is said."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from encrypted_records.cli.supervise.startup import MODULES, Side
from tests.packaging.conftest import Environments
from tests.packaging.pythons import VERSIONS, interpreter
from tests.support.demo import finish
from tests.support.service import Service, call, clean_environment, free_ports, running_service
from tests.support.sides import running_side

Services = Callable[[str], Service]
Command = Callable[..., subprocess.CompletedProcess[str]]

#: What the base may have, though sides need it as well: other packages of the base bring it.
BROUGHT = {"cryptography", "markdown_it"}

PROGRAM = """
import sys
from encrypted_records import Client

url, email, password = sys.argv[1:]
with Client(url, email=email, password=password) as client:
    schema = client.create_dataset("Ships").create_schema(
        "Ship", {"type": "object", "properties": {"name": {"type": "string"}}}
    )
    schema.ingest([{"name": "Beagle"}, {"name": "Vega"}])
    print([one["name"] for one in schema.search("name ~ /^V/")])
"""

BASE = ("cli", "client", "http", "model")
EVERY_MODULE = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(f"encrypted_records.{name}")
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            print(module.name, error.name)
"""
#: Large packages that clients do without.
NOT_OF_CLIENTS = {"numpy", "psycopg", "re2"}

THERE = "import sys; from importlib.util import find_spec; print(*filter(find_spec, sys.argv[1:]))"


def run(
    environment: Path, program: str, *arguments: str, **told: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [environment / "bin" / program, *arguments],
        cwd=environment,
        env=clean_environment(**told),
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


def present(environment: Path, modules: set[str]) -> set[str]:
    """Those of ``modules`` that are installed there."""
    return set(run(environment, "python", "-c", THERE, *modules).stdout.split())


@pytest.fixture(scope="module")
def base(environments: Environments) -> Path:
    return environments("", sys.executable)


def test_without_extras_no_side_is_there_and_all_of_client_and_command_line_is(base: Path) -> None:
    sides = {*MODULES["api"], *MODULES["proxy"]}
    assert present(base, sides | NOT_OF_CLIENTS) <= BROUGHT
    done = run(base, "python", "-c", EVERY_MODULE, *BASE)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.fixture(scope="module")
def ers(base: Path, services: Services, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The command without extras, as somebody at a service."""
    service = services("sqlite")
    account = service.new_account()
    told = {
        "ERS_PROXY_URL": service.proxy_url,
        "ERS_EMAIL": account.email,
        "ERS_PASSWORD": account.password,
        "ERS_CONFIG": "/dev/null",
        "XDG_STATE_HOME": str(tmp_path_factory.mktemp("state")),
    }
    return lambda *given: run(base, "ers", *given, **told)


def test_without_extras_a_table_of_postgresql_says_what_to_install(
    ers: Command,
) -> None:
    done = ers("import", "postgresql://nobody@127.0.0.1/x", "--table", "t")
    assert done.returncode == 2
    assert "pip install 'encrypted-records[postgresql]'" in done.stderr


def test_without_extras_programs_and_commands_store_and_find_records(
    base: Path,
    services: Services,
    ers: Command,
    tmp_path: Path,
) -> None:
    service = services("sqlite")
    account = service.new_account()
    done = run(base, "python", "-c", PROGRAM, service.proxy_url, account.email, account.password)
    assert done.stdout == "['Vega']\n", done.stderr
    file = tmp_path / "people.csv"
    file.write_text("name;born\nAda;10.12.1815\nAlan;23.06.1912\n")
    imported = ers("import", str(file), "--dataset", "lab", "--yes")
    assert imported.returncode == 0, imported.stderr
    found = ers("record", "search", "--schema", "people", "born < 1900-01-01", "-o", "csv")
    assert found.stdout.splitlines()[1].startswith("Ada,1815-12-10,")


@pytest.mark.parametrize(
    ("command", "extra"), [("up", "all"), ("demo", "all"), ("api", "api"), ("proxy", "proxy")]
)
def test_a_side_that_is_not_installed_says_what_to_install(
    base: Path, tmp_path: Path, command: str, extra: str
) -> None:
    done = run(base, "ers", command, "--data-dir", str(tmp_path / "data"))
    assert done.returncode == 1
    assert "packages that are not installed" in done.stderr
    assert f"pip install 'encrypted-records[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


def test_the_api_alone_runs_without_what_only_a_proxy_needs(
    environments: Environments, tmp_path: Path
) -> None:
    environment = environments("api", sys.executable)
    assert present(environment, _only("proxy")) <= BROUGHT
    (port,) = free_ports(1)
    settings = {"ERS_DATA_DIR": str(tmp_path / "data"), "ERS_API_PORT": str(port)}
    url = f"http://127.0.0.1:{port}"
    ers = [environment / "bin" / "ers"]
    with running_side("api", settings, url, tmp_path / "log", program=ers):
        assert call("GET", f"{url}/api/datasets/").status == 401


def test_a_proxy_alone_runs_without_what_only_an_api_needs(
    environments: Environments, tmp_path: Path, services: Services
) -> None:
    environment, service = environments("proxy", sys.executable), services("sqlite")
    assert present(environment, _only("api")) == set()
    (port,) = free_ports(1)
    settings = {
        "ERS_DATA_DIR": str(tmp_path / "data"),
        "ERS_PROXY_PORT": str(port),
        "ERS_BASE_URL": service.base_url,
    }
    url = f"http://127.0.0.1:{port}"
    ers = [environment / "bin" / "ers"]
    account = service.new_account()
    with running_side("proxy", settings, url, tmp_path / "log", program=ers):
        done = run(environment, "python", "-c", PROGRAM, url, account.email, account.password)
    assert done.stdout == "['Vega']\n", done.stderr


def _only(side: Side) -> set[str]:
    """What this side needs and the other does not."""
    other: Side = "api" if side == "proxy" else "proxy"
    return set(MODULES[side]) - set(MODULES[other])


@pytest.mark.slow
def test_the_demo_works_from_the_wheel_with_all_extras_and_every_module_is_importable(
    environments: Environments, tmp_path: Path
) -> None:
    """On the newest Python of this machine: CI runs all tests on each."""
    found = filter(None, map(interpreter, reversed(VERSIONS)))
    environment = environments("all", next(found, sys.executable))
    ers = [environment / "bin" / "ers"]
    with running_service(tmp_path / "data", command="demo", program=ers) as service:
        shown = finish(service)
    assert "store 1000 records" in shown
    assert "4 of 4 records" in shown
    assert "5 of 16 records" in shown
    proxy = ("crypto", "index", "ingest", "proxy")
    done = run(environment, "python", "-c", EVERY_MODULE, *BASE, *proxy)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_the_module_is_the_program(base: Path) -> None:
    by_name, by_module = (
        run(base, "ers", "--help"),
        run(base, "python", "-m", "encrypted_records", "--help"),
    )
    assert by_module.stdout == by_name.stdout
    assert "Run the API alone" in by_name.stdout
