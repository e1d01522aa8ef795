"""ARCHITECTURE.md draws the packages that there are, and names files that there are."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from grimp import build_graph

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "encrypted_records"
TEXT = (ROOT / "ARCHITECTURE.md").read_text()

#: The heading over a table, and the folder whose content it lists.
TABLES = {
    "## Packages": SOURCE,
    "### The proxy": SOURCE / "proxy",
    "### The index": SOURCE / "index",
}

LONGEST_FILE = 800


def listed(heading: str) -> set[str]:
    """What the first table under a heading lists."""
    section = TEXT.partition(heading + "\n")[2].partition("\n#")[0]
    return set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))


@pytest.mark.parametrize("heading", TABLES)
def test_a_table_lists_the_packages_of_its_folder(heading: str) -> None:
    folder = TABLES[heading]
    modules = {path.name for path in folder.glob("*.py") if path.name != "__init__.py"}
    packages = {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}
    assert listed(heading) == modules | packages


@pytest.mark.parametrize("folder", ["proxy", "index"])
def test_every_package_says_what_it_is_for_and_what_it_may_import(folder: str) -> None:
    for path in (SOURCE / folder).glob("*/__init__.py"):
        docstring = path.read_text().split('"""')[1]
        assert "import" in docstring, path


DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_module_that_a_document_names_is_there(document: Path) -> None:
    if document.name == "CHANGELOG.md":
        return
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)\b", document.read_text())
    tops = {path.name for path in SOURCE.iterdir() if path.is_dir()}
    named = [name for name in named if name.split("/")[0] in tops]
    assert [name for name in named if not (SOURCE / name).exists()] == []


def test_no_file_is_longer_than_a_topic_needs() -> None:
    folders = ("src", "tests", "bench", "scripts")
    sources = [path for name in folders for path in (ROOT / name).rglob("*.py")]
    longer = {
        str(path.relative_to(ROOT))
        for path in sources
        if len(path.read_text().splitlines()) > LONGEST_FILE
    }
    assert longer == set()


def test_no_modules_import_each_other() -> None:
    graph = build_graph("encrypted_records", exclude_type_checking_imports=True)
    order = TopologicalSorter(
        {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    )
    order.prepare()  # it raises CycleError, which names them
