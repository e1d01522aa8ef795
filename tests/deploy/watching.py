"""What alerts and dashboard ask for, and what a side tells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from tests.deploy.files import DEPLOY, documents, walked

MONITORING = DEPLOY / "monitoring"
#: Prometheus gives these itself.
_GIVEN = {"up"}
_GIVEN_LABELS = {"job", "le"}
_METRIC = re.compile(r"\b(up|ers_\w+)\b(?:\{([^}]*)\})?")
_TOLD = re.compile(r"^(ers_\w+)(?:\{(.*)\})? \S+$", re.MULTILINE)


def expressions() -> Iterator[tuple[str, str]]:
    """Each expression with the name of its alert or panel."""
    for group in documents(MONITORING / "alerts.yaml")[0]["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    for one in walked(dashboard["panels"]):
        if isinstance(one, dict) and "targets" in one:
            for target in one["targets"]:
                yield one["title"], target["expr"].replace("$__rate_interval", "5m")


def told(text: str) -> dict[str, set[str]]:
    """The names in an answer of Prometheus' form, each with its labels."""
    return {name: set(re.findall(r"(\w+)=", labels)) for name, labels in _TOLD.findall(text)}


def unknown(expression: str, names: dict[str, set[str]]) -> list[str]:
    """Names and labels of an expression that nobody tells."""
    found = []
    asked = [(name, labels) for name, labels in _METRIC.findall(expression)]
    for name, labels in asked:
        if name not in _GIVEN and name not in names:
            found.append(name)
        for label in re.findall(r"(\w+)\s*[=!]", labels):
            if label not in names.get(name, set()) | _GIVEN_LABELS:
                found.append(f"{name}.{label}")
    every = set[str]().union(*(names.get(name, set()) for name, _ in asked))
    for by in re.findall(r"\bby \(([^)]*)\)", expression):
        found += [one for one in re.split(r",\s*", by) if one not in every | _GIVEN_LABELS]
    return found
