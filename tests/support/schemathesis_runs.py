"""Runs of schemathesis as its users have it: a program of its own, whose report is read."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: How long a run may go on with random requests, after those that the document determines; zero
#: makes none of these, and all of the others however long they take.
SECONDS = int(os.environ.get("SCHEMATHESIS_SECONDS", "0"))


#: After which a run has failed. It takes half a minute where nobody else uses the machine.
LONGEST_SECONDS = 600 + 2 * SECONDS


@dataclass(frozen=True)
class Finding:
    """A check that an answer did not pass. ``case`` says what was special about the request."""

    check: str
    operation: str
    status: int | None
    code: str
    case: str
    message: str

    def __str__(self) -> str:
        said = self.message.replace("\n", " ")
        return f"{self.operation}: {self.check}: {self.status} {self.code}: {self.case}: {said}"


def run(
    document: Mapping[str, Any], url: str, auth: tuple[str, str], folder: Path
) -> tuple[int, list[Finding]]:
    """Ask every operation of a document; how many requests that took, and what was found.

    Which requests are made follows from the document alone: the boundaries of every value, what
    lies beyond them, other methods, other credentials. ``SCHEMATHESIS_SECONDS`` adds random ones.
    """
    described, report = folder / "document.json", folder / "report.ndjson"
    described.write_text(json.dumps(document))
    options = ["--phases", "coverage,fuzzing", "--max-time", str(SECONDS)] if SECONDS else []
    tool = Path(sys.executable).with_name("schemathesis")
    done = subprocess.run(
        [
            *(tool, "run", described, "--url", url, "--auth", ":".join(auth)),
            *("--phases", "coverage", "--generation-deterministic", "--checks", "all"),
            *("--continue-on-failure", "--no-color", "--request-timeout", "30"),
            *("--report", "ndjson", "--report-ndjson-path", report),
            *options,
        ],
        cwd=folder,
        env={**os.environ, "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_SECONDS,
    )
    # 1: it found something, which is judged by the caller.
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert " Errors:" not in done.stdout, done.stdout
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    recorders = [
        line["ScenarioFinished"]["recorder"] for line in lines if "ScenarioFinished" in line
    ]
    asked = sum(len(recorder.get("interactions", ())) for recorder in recorders)
    return asked, [finding for recorder in recorders for finding in _findings(recorder)]


def _findings(recorder: Mapping[str, Any]) -> Iterator[Finding]:
    for case_id, checks in recorder.get("checks", {}).items():
        for check in checks:
            if check["status"] == "success":
                continue
            response = recorder["interactions"][case_id]["response"] or {}
            meta = recorder["cases"][case_id]["value"].get("meta") or {}
            data = meta.get("phase", {}).get("data", {})
            yield Finding(
                check["name"],
                recorder["label"],
                response.get("status_code"),
                _code_of(response),
                data.get("description") or data.get("scenario") or "",
                check["failure_info"]["failure"]["message"],
            )


def _code_of(response: Mapping[str, Any]) -> str:
    """The code of a problem and of its places: ``invalid: required``. Empty of other answers."""
    content = (response.get("content") or {}).get("$base64", "")
    try:
        body = json.loads(base64.b64decode(content))
    except ValueError:
        return ""
    if not isinstance(body, dict) or "code" not in body:
        return ""
    places = ", ".join(sorted({flaw["code"] for flaw in body.get("errors", ())}))
    return f"{body['code']}: {places}" if places else str(body["code"])
