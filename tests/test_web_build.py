"""Where the pages' scripts cannot be built, somebody is told."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_without_node_the_build_says_so_and_the_service_starts_all_the_same(
    tmp_path: Path,
) -> None:
    for name in ("bash", "dirname", "env"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    script = str(ROOT / "scripts" / "build-web")
    environment = {**os.environ, "PATH": str(tmp_path)}

    for arguments, code in ([], 0), (["--required"], 1):
        done = subprocess.run(
            [script, *arguments], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code
        assert "npm is not installed" in done.stderr
        assert "hint: install Node 20" in done.stderr
