"""The rules that ``make check`` enforces hold: one exit code says whether all is well."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"], ["lint-imports"]],
    ids=" ".join,
)
def test_the_code_passes(command: list[str]) -> None:
    tool, *rest = command
    done = subprocess.run(
        [BIN / tool, *rest], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_one_module_normalizes_unicode() -> None:
    """The standard library's takes quadratic time, so everything goes by the one that does not."""
    sources = (ROOT / "src").rglob("*.py")
    found = [source.name for source in sources if "unicodedata.normalize(" in source.read_text()]
    assert found == ["texts.py"]


#: Test files that sleep or look at a clock. It may only become less.
MOST_TIMED = 16


def test_a_file_that_may_wait_for_time_does_and_there_are_not_more_of_them() -> None:
    rules = tomllib.loads((ROOT / "tests" / "ruff.toml").read_text())
    listed = set(rules["lint"]["extend-per-file-ignores"])
    clocks = re.compile(r"\btime\.(sleep|monotonic|perf_counter)\b")
    assert [one for one in listed if not clocks.search((ROOT / "tests" / one).read_text())] == []
    assert len(listed) == MOST_TIMED
