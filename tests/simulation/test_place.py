"""The folders of runs are gone with their processes, however these end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.place import place

_HOLD = """
import sys, time
from pathlib import Path
from tests.support.place import place
with place(Path(sys.argv[1])) as made:
    (made / "file").write_bytes(b"x")
    print(made, flush=True)
    sys.stdin.read()
"""


def test_a_folder_stays_while_its_process_lives_and_goes_behind_a_kill(tmp_path: Path) -> None:
    holding = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    with holding:
        assert holding.stdout is not None
        left = Path(holding.stdout.readline().strip())
        with place(tmp_path) as own:
            assert sorted(tmp_path.iterdir()) == sorted([left, own])
        os.kill(holding.pid, signal.SIGKILL)
        holding.wait()
    with place(tmp_path) as own:
        assert list(tmp_path.iterdir()) == [own]
    assert list(tmp_path.iterdir()) == []
