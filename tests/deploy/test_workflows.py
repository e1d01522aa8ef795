"""The habits in .github/: they parse, are pinned, and name what is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.deploy.files import ROOT, walked
from tests.deploy.test_files import checked

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yaml"))
EVERY = "\n".join(path.read_text() for path in WORKFLOWS)
MAKEFILE = (ROOT / "Makefile").read_text()


def loaded(path: Path) -> Any:
    return YAML(typ="safe").load(path)


def commands(workflow: Any) -> list[str]:
    """What is run in a shell."""
    return [str(one["run"]) for one in walked(workflow) if isinstance(one, dict) and "run" in one]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_fits_its_schema_and_may_only_read_unless_a_job_says_more(path: Path) -> None:
    checked("vendor.github-workflows", path)
    workflow = loaded(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_nothing_that_a_stranger_writes_becomes_a_command(path: Path) -> None:
    assert "pull_request_target" not in path.read_text()
    assert [command for command in commands(loaded(path)) if "${{" in command] == []


def test_every_action_is_pinned_to_one_commit_whose_version_stands_beside_it() -> None:
    used = re.findall(r"uses: (\S+)@(.*)", EVERY)
    assert len(used) > 10
    pins: dict[str, set[str]] = {}
    for action, pin in used:
        assert re.fullmatch(r"[0-9a-f]{40} # v\d+\.\d+\.\d+", pin), (action, pin)
        pins.setdefault("/".join(action.split("/")[:2]), set()).add(pin)
    assert {action for action, found in pins.items() if len(found) > 1} == set()


def test_every_tool_that_is_fetched_by_name_has_a_version() -> None:
    for line in re.findall(r"(?:uv tool run|pip install) (.*)", EVERY):
        assert "==" in line, line
    (version,) = re.findall(r"^UV_VERSION := (\S+)", MAKEFILE, re.MULTILINE)
    assert set(re.findall(r"\buv==(\S+)", EVERY)) == {version}


def test_the_suite_runs_on_every_python_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {
        classifier.rpartition(" ")[2]
        for classifier in project["classifiers"]
        if ":: 3." in classifier
    }
    job = loaded(GITHUB / "workflows" / "tests.yaml")["jobs"]["suite"]
    assert set(job["strategy"]["matrix"]["python"]) == named
    assert job["steps"][-1]["run"] == ".ci/run"


def test_targets_and_files_that_workflows_name_are_there() -> None:
    for target in re.findall(r"\bmake (?:--silent )?(\w+)", EVERY):
        assert f"\n{target}:" in MAKEFILE, target
    for path in re.findall(r"\btests/[\w/]+\.py", EVERY):
        assert (ROOT / path).exists(), path


def test_only_the_job_that_publishes_may_publish() -> None:
    jobs = loaded(GITHUB / "workflows" / "release.yaml")["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"] == "pypi"
    # It runs none of our code, nor anybody's that we depend on.
    assert commands(jobs["publish"]) == []
    assert "secrets." not in EVERY


def test_dependabot_looks_where_there_is_something() -> None:
    path = GITHUB / "dependabot.yml"
    checked("vendor.dependabot", path)
    looked = {
        (update["package-ecosystem"], folder)
        for update in loaded(path)["updates"]
        for folder in update.get("directories", [update.get("directory")])
    }
    holds = {"uv": "uv.lock", "npm": "package-lock.json", "docker": "Containerfile"}
    holds |= {"github-actions": ".github", "docker-compose": "compose.yaml"}
    for ecosystem, folder in looked:
        assert (ROOT / folder.strip("/") / holds[ecosystem]).exists(), (ecosystem, folder)
    assert {ecosystem for ecosystem, _ in looked} == set(holds)


def test_owners_are_named_of_files_that_there_are() -> None:
    lines = (GITHUB / "CODEOWNERS").read_text().splitlines()
    rules = [line.split() for line in lines if line and not line.startswith("#")]
    assert rules[0][0] == "*"
    for pattern, *owners in rules:
        assert pattern == "*" or (ROOT / pattern.strip("/")).exists(), pattern
        assert all(owner.startswith("@") for owner in owners)


def test_forms_for_issues_ask_for_no_secret_and_lead_to_the_private_way() -> None:
    forms = sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml"))
    for path in forms:
        if path.stem == "config":
            continue
        form = loaded(path)
        assert {"name", "description", "body"} <= set(form)
        names = [one["id"] for one in form["body"] if one["type"] != "markdown"]
        assert len(names) == len(set(names))
    bug = (GITHUB / "ISSUE_TEMPLATE" / "bug.yml").read_text()
    assert "SECURITY.md" in bug
    assert loaded(GITHUB / "ISSUE_TEMPLATE" / "config.yml") == {"blank_issues_enabled": False}


def test_hooks_before_a_commit_run_what_the_environment_has() -> None:
    (own,) = loaded(ROOT / ".pre-commit-config.yaml")["repos"]
    assert own["repo"] == "local"
    for hook in own["hooks"]:
        assert hook["language"] == "system"
        assert (ROOT / hook["entry"].split()[0]).exists(), hook["entry"]
