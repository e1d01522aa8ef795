"""The rules that ``make check`` enforces hold: one exit code says whether all is well."""

import subprocess
import sys
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
    assert found == ["normalization.py"]
