"""What is in the wheel, and what it says of itself."""

from __future__ import annotations

import re
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from encrypted_records import __version__
from encrypted_records.cli.supervise.startup import MODULES, Side
from tests.packaging.conftest import ROOT

WEB = "encrypted_records/proxy/pages"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def test_it_holds_pages_scripts_and_the_licences_of_what_is_in_them(
    wheel: Path, names: set[str]
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        licences = archive.read(f"{WEB}/static/built/LICENCES.txt").decode()
    assert {f"{WEB}/static/built/{name}" for name in ("pages.js", "upload.js")} <= names
    assert {f"{WEB}/static/{name}" for name in ("pages.css", "import.css")} <= names
    assert f"{WEB}/templates/base.html" in names
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.*")]
    texts = {f"{WEB}/help_texts/{path.relative_to(ROOT).as_posix()}" for path in documents}
    assert texts <= names
    assert "htmx.org" in licences
    assert "tus-js-client" in licences


def test_it_holds_the_data_of_the_demo_and_where_it_is_from(names: set[str]) -> None:
    files = ("census.csv.gz", "census.schema.json", "README.md")
    assert {f"encrypted_records/example_data/{name}" for name in files} <= names


def test_it_tells_type_checkers_that_it_has_types(names: set[str]) -> None:
    assert "encrypted_records/py.typed" in names


def test_it_holds_neither_tests_nor_what_scripts_are_built_from(names: set[str]) -> None:
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"encrypted_records", f"encrypted_records-{__version__}.dist-info"}
    assert [name for name in names if "node_modules" in name or "__pycache__" in name] == []


def test_it_says_who_made_it_what_for_and_on_which_pythons(metadata: Message) -> None:
    assert metadata["Version"] == __version__
    assert metadata["Author"] == "Encrypted Records developers"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    classifiers = metadata.get_all("Classifier", [])
    assert "Typing :: Typed" in classifiers
    for minor in range(11, 15):
        assert f"Programming Language :: Python :: 3.{minor}" in classifiers
    # An address that leads nowhere is worse than none.
    assert metadata.get_all("Project-URL", []) == []


def test_every_extra_that_a_text_or_an_error_names_is_one(metadata: Message) -> None:
    assert set(metadata.get_all("Provides-Extra", [])) == {
        *("all", "api", "arrow", "aws", "azure", "excel", "gcp", "mcp", "pkcs11", "postgresql"),
        *("proxy", "s3", "sql", "vault"),
    }


@pytest.fixture(scope="module")
def packages() -> dict[str, set[str]]:
    """Each module that is installed here -> the packages that it is of, as an index spells them."""
    return {
        module: {package.lower().replace("_", "-") for package in found}
        for module, found in packages_distributions().items()
    }


@pytest.mark.parametrize("side", MODULES)
def test_what_is_looked_for_before_a_side_starts_is_what_its_extra_brings(
    side: Side, packages: dict[str, set[str]]
) -> None:
    wishes = PROJECT["optional-dependencies"][side]
    wished = {re.split(r"[\[>]", wish)[0] for wish in wishes}
    found = set[str]().union(*(packages[module] for module in MODULES[side]))
    assert found == wished


#: For few: key services of companies, and agents.
OF_FEW = {"aws", "azure", "gcp", "mcp", "pkcs11"}


def test_all_is_every_other_extra_but_those_of_few() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    named = everything.partition("[")[2].rstrip("]").split(",")
    assert set(named) == set(extras) - {"all"} - OF_FEW
