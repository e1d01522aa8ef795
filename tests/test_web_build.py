"""The pages' scripts get into the package, or somebody is told that they did not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
WEB = "encrypted_records/proxy/web"


def test_a_wheel_holds_pages_scripts_and_the_licences_of_what_is_in_them(tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", tmp_path], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        licences = archive.read(f"{WEB}/static/built/LICENCES.txt").decode()

    built = {f"{WEB}/static/built/{name}" for name in ("pages.js", "upload.js", "upload.css")}
    assert built <= names
    assert f"{WEB}/templates/base.html" in names
    assert f"{WEB}/static/pages.css" in names
    assert "htmx.org" in licences
    assert "@uppy/core" in licences
    assert not [name for name in names if "node_modules" in name]


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
