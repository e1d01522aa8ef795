"""One wheel for all tests, and environments into which it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")

#: Makes the environment for an extra (none: ``""``) and an interpreter; its folder.
Environments = Callable[[str, str], Path]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, as ``make wheel`` builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    build: list[str | Path] = [UV, "build", "--quiet", "--wheel", "--out-dir", folder]
    subprocess.run(build, cwd=ROOT, check=True)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="session")
def environments(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environments:
    """Empty environments with the wheel and what it asks for, in the versions of uv.lock."""
    locked = tmp_path_factory.mktemp("locked") / "constraints.txt"
    export = "export --quiet --frozen --all-extras --no-dev --no-hashes --no-emit-project".split()
    subprocess.run(
        [UV, *export, "--output-file", locked], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )
    outside = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}

    @cache
    def made(extra: str, python: str) -> Path:
        folder = tmp_path_factory.mktemp(f"environment-{extra}") / "venv"
        wish = f"encrypted-records{f'[{extra}]' if extra else ''} @ {wheel.as_uri()}"
        target = ["--python", str(folder / "bin" / "python")]
        for arguments in (
            ["venv", "--quiet", "--python", python, str(folder)],
            ["pip", "install", "--quiet", *target, "--constraint", str(locked), wish],
        ):
            done = subprocess.run(
                [UV, *arguments], env=outside, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
        return folder

    return made
