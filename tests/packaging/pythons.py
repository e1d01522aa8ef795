"""The interpreters of this machine."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
#: Where tools that keep several of them have put them.
_KEPT = (".pyenv/versions/*/bin", ".local/share/uv/python/*/bin", ".local/bin")


@cache
def interpreter(version: str) -> str | None:
    """The path of a Python of this version that runs; None where there is none."""
    name = f"python{version}"
    kept = [path / name for folder in _KEPT for path in Path.home().glob(folder)]
    candidates = [shutil.which(name), *map(str, sorted(kept))]
    return next(
        (candidate for candidate in candidates if candidate and _runs(candidate, version)), None
    )


def _runs(path: str, version: str) -> bool:
    asked = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [path, "-I", "-c", asked], capture_output=True, text=True, check=False, timeout=120
        )
    except OSError:
        return False
    return done.stdout.strip() == version
