"""The pages' style sheets take sizes, radii and spaces from one scale, and have no dead rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from encrypted_records.proxy import pages

FOLDER = Path(pages.__file__).parent
SHEETS = sorted((FOLDER / "static").glob("*.css"))
SCRIPTS = Path(__file__).parents[2] / "web" / "src"
MOST_LINES = 1900
#: Properties whose lengths are tokens alone.
SCALED = re.compile(r"font-size|[a-z-]*radius|(padding|margin)(-[a-z]+)*|(row-|column-)?gap")
LENGTH = re.compile(r"(?<![\w.-])-?[0-9.]*[1-9][0-9.]*(rem|em|px|pt|ch|cm|mm|in)\b")
DECLARATION = re.compile(r"(?<![\w-])([a-z-]+):\s*([^;{}]+)(?=[;}])")


def text_of(sheet: Path) -> str:
    return re.sub(r"/\*.*?\*/", "", sheet.read_text(), flags=re.DOTALL)


def unscaled(text: str) -> list[str]:
    found = DECLARATION.findall(text)
    wrong = [f"{name}: {value}" for name, value in found if SCALED.fullmatch(name)]
    return [one for one in wrong if LENGTH.search(one.partition(":")[2])]


def unknown_names(text: str, known: str) -> set[str]:
    """Classes and ids of selectors that nothing gives to an element."""
    selectors = " ".join(re.findall(r"([^{};]+)\{", text))
    selectors = re.sub(r'"[^"]*"', "", selectors)
    names = set(re.findall(r"[.#]([A-Za-z][\w-]*)", selectors))
    return {
        name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", known)
    }


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.name)
def test_sizes_radii_and_spaces_are_of_the_scale(sheet: Path) -> None:
    assert unscaled(text_of(sheet)) == []


def test_the_scale_has_five_sizes_three_radii_and_six_spaces_in_one_file() -> None:
    told = {sheet.name: re.findall(r"--[a-z]+-[0-9]+(?=:)", text_of(sheet)) for sheet in SHEETS}
    steps = told.pop("frame.css")
    assert steps == [
        *(f"--text-{step}" for step in range(1, 6)),
        *(f"--round-{step}" for step in range(1, 4)),
        *(f"--space-{step}" for step in range(1, 7)),
    ]
    assert not any(told.values())


def test_there_are_two_breakpoints_and_no_more_lines_than_were_agreed() -> None:
    every = "".join(text_of(sheet) for sheet in SHEETS)
    assert set(re.findall(r"width[ :<>=]+([0-9.]+rem)\)", every)) == {"48rem", "70rem"}
    assert sum(len(sheet.read_text().splitlines()) for sheet in SHEETS) <= MOST_LINES


def test_no_rule_is_for_something_that_no_page_has() -> None:
    sources = [*FOLDER.glob("*.py"), *(FOLDER / "templates").glob("*.html"), *SCRIPTS.glob("*.js")]
    known = "\n".join(source.read_text() for source in sources)
    known += " ".join(f"heat-{step}" for step in range(1, 9))  # made by their number
    assert {name for sheet in SHEETS for name in unknown_names(text_of(sheet), known)} == set()


def test_no_rule_waits_for_something_to_be_empty_in_its_element() -> None:
    # Safari shows such a rule's effect once and does not look again.
    waiting = r":has\([^{,]*:empty"
    assert [sheet.name for sheet in SHEETS if re.search(waiting, text_of(sheet))] == []
    assert re.search(waiting, "main:has(> .panel:not(:empty)) { display: grid; }")


def test_what_is_not_of_the_scale_is_found() -> None:
    assert unscaled("p { margin: 0 auto; padding: var(--space-1) 50%; }") == []
    bad = "p {\n  padding: 0 3px;\n}\na { color: red; font-size: 1.1em; border-radius: 2px; }"
    assert len(unscaled(bad)) == 3
    assert unknown_names(".known, #other:hover { color: red; }", "known") == {"other"}
