"""A pytest plugin for `.ci/run`: repeats each failed test once, alone on the machine.

A test that passes only alone depends on chance or on load, and so far each of them revealed a real
race. The plugin therefore prints its name and its first failure under "passed only alone", and
counts it in the summary line. The run passes with at most `MOST_ALONE` such names; a test that
fails alone as well fails the run. The plugin also prints the slowest files.

`make test` does not load it: there a failed test fails.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

#: More names than this under "passed only alone" fail the run.
MOST_ALONE = 2
#: With more failures than this, the run has failed for a common reason: nothing is repeated.
MOST_REPEATED = 10
SLOWEST_FILES = 10
#: The category of these tests in pytest's summary line.
CATEGORY = "passed only alone"
_FAILED = ("failed", "error")
_SECONDS = 900


# After pytest's own: its reporter is a plugin by then.
@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Only the process that reports repeats tests, not the workers of pytest-xdist."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not hasattr(config, "workerinput") and reporter is not None:
        config.pluginmanager.register(Alone(reporter), "alone")


def passes(test: str, root: Path) -> bool:
    """Run a test in a process of its own. A test that is skipped there has not passed."""
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", test]
    try:
        done = subprocess.run(
            command, cwd=root, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return False
    *_, summary = done.stdout.splitlines() or [""]
    return done.returncode == pytest.ExitCode.OK and summary.startswith("1 passed")


class Alone:
    def __init__(self, reporter: TerminalReporter) -> None:
        self._reporter = reporter
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    # Last, when the workers of pytest-xdist have ended and the machine is idle.
    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus != pytest.ExitCode.TESTS_FAILED:
            return
        stats = self._reporter.stats
        reports = [report for category in _FAILED for report in stats.get(category, [])]
        # A module that cannot be imported has a report without phases: it is no test to repeat.
        tests = [report for report in reports if isinstance(report, pytest.TestReport)]
        names = list(dict.fromkeys(report.nodeid for report in tests))
        if len(names) > MOST_REPEATED:
            self._reporter.write_line(f"{len(names)} tests failed: none is repeated alone")
            return
        passed = {name for name in names if passes(name, session.config.rootpath)}
        for category in _FAILED:
            kept = [report for report in stats.pop(category, []) if report.nodeid not in passed]
            if kept:
                stats[category] = kept
        if passed:
            # One report for each name: a test may fail, and its teardown with it.
            first = {report.nodeid: report for report in reversed(tests)}
            stats[CATEGORY] = [first[name] for name in names if name in passed]
            # The call of a test whose teardown failed has a report of its own, among those passed.
            stats["passed"] = [
                stat for stat in stats.get("passed", []) if stat.nodeid not in passed
            ]
        if len(passed) <= MOST_ALONE and not any(stats.get(category) for category in _FAILED):
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self) -> None:
        write = self._reporter.write_line
        alone = self._reporter.stats.get(CATEGORY, [])
        if alone:
            self._reporter.section(CATEGORY)
            for report in alone:
                self._reporter.section(report.nodeid, "-")
                write(report.longreprtext)
            for report in alone:
                write(f"{CATEGORY}: {report.nodeid}")
            if len(alone) > MOST_ALONE:
                write(f"more than {MOST_ALONE} tests passed only alone: the run has failed")
        self._reporter.section(f"the {SLOWEST_FILES} slowest files")
        slowest = sorted(self._seconds.items(), key=lambda item: -item[1])
        for path, seconds in slowest[:SLOWEST_FILES]:
            write(f"{seconds:8.1f} s  {path}")
