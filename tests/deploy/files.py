"""What lies in deploy/, read."""

from __future__ import annotations

import configparser
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def documents(path: Path) -> list[Any]:
    """The documents of a YAML file, with anchors and merges resolved."""
    return list(YAML(typ="safe").load_all(path))


def needed(program: str) -> str:
    """The path of a program of the system's; the test is skipped, by its name, without it."""
    found = shutil.which(program, path="/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin")
    if found is None:
        pytest.skip(f"there is no {program} on this machine")
    return found


class Unit:
    """A unit of systemd: its lines by name, each as often as it stands there."""

    def __init__(self, path: Path) -> None:
        parser = configparser.RawConfigParser(strict=False, dict_type=_Multiple)
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read_string(path.read_text())
        self._lines = parser["Service"]

    def __getitem__(self, name: str) -> list[str]:
        return self._lines.get(name, "").split("\n")

    @property
    def environment(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self["Environment"])


class _Multiple(dict[str, Any]):
    """Values of a name that stands there again are added, not replaced."""

    def __setitem__(self, key: str, value: Any) -> None:
        if isinstance(value, list) and key in self:
            self[key].extend(value)
        else:
            super().__setitem__(key, value)


def walked(value: Any) -> Iterator[Any]:
    """A value and all that is in it."""
    yield value
    if isinstance(value, dict):
        for one in value.values():
            yield from walked(one)
    elif isinstance(value, list):
        for one in value:
            yield from walked(one)
