"""Starts that are copies of one process draw others, and are children of who started them. None is
left where whoever started it gave up."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.children import running_children
from tests.support.pools import CopiedWorkers
from tests.support.service import clean_environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="starts are ordinary ones")

DRAWS = """
import random, ssl, uuid
from encrypted_records import runtime

for drawn in (
    runtime.random_hex(16),
    runtime.uuid7(nanoseconds=10**18),
    runtime.chance.random(),
    random.random(),
    ssl.RAND_bytes(16).hex(),
    uuid.uuid4(),
):
    print(drawn)
"""


def test_copies_of_one_process_draw_others() -> None:
    """A generator that was seeded before the fork would draw the same nonces in all of them."""
    line = [sys.executable, "-c", DRAWS]
    copies = [forked.run(line, clean_environment()) for _ in range(3)]
    assert [copy.returncode for copy in copies] == [0, 0, 0]
    for drawn in zip(*(copy.stdout.splitlines() for copy in copies), strict=True):
        assert len(set(drawn)) == len(copies)


def test_starts_at_once_are_all_children_of_this_process() -> None:
    """A process that is no child is not waited for: it would seem to have ended well at once."""
    template = forked.template_of_this_process()
    assert template is not None
    request = {
        "line": [sys.executable, "-c", "raise SystemExit(7)"],
        "environment": clean_environment(),
        "folder": str(Path.cwd()),
        "session": False,
    }
    with Path(os.devnull).open("r+b") as nothing, ThreadPoolExecutor(4) as threads:

        def code(_: int) -> int:
            pid = template.start(request, dict.fromkeys((0, 1, 2), nothing.fileno()))
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        assert set(threads.map(code, range(40))) == {7}


@pytest.mark.parametrize(
    ("name", "is_copied"),
    [("ERS_DATA_DIR", True), ("PROMETHEUS_MULTIPROC_DIR", False), ("TZ", False)],
)
def test_no_copy_stands_for_a_start_whose_imports_would_read_other_settings(
    name: str, is_copied: bool
) -> None:
    template = forked.template_of_this_process()
    assert template is not None
    line = [sys.executable, "-m", forked.PROGRAM]
    assert template.suits(line, clean_environment())
    assert template.suits(line, clean_environment(**{name: "another"})) is is_copied


def test_a_copy_has_the_folder_the_arguments_and_the_environment_it_was_given(
    tmp_path: Path,
) -> None:
    shown = "import os, sys; print(os.getcwd(), sys.argv[1:], sorted(os.environ))"
    given = {**clean_environment(), "ONLY_HERE": "1"}
    with forked.Forked(
        [sys.executable, "-c", shown, "a", "b c"],
        env=given,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        said, _ = process.communicate()
    assert said.strip() == f"{tmp_path} {['a', 'b c']} {sorted(given)}"


def test_a_copy_has_no_descriptors_but_those_it_was_given() -> None:
    listed = "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])"
    with Path(os.devnull).open() as held:
        os.set_inheritable(held.fileno(), True)
        assert forked.run([sys.executable, "-c", listed], clean_environment()).stdout == (
            "[0, 1, 2]\n"
        )


def test_a_worker_whose_start_is_cancelled_ends() -> None:
    forked.template_of_this_process()
    before = running_children()

    async def give_up() -> None:
        start = asyncio.create_task(CopiedWorkers(count=1).start())
        await asyncio.sleep(0)  # the thread that starts it is under way
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start

    asyncio.run(give_up())
    assert running_children() <= before
