"""The units of systemd, judged by systemd itself. None is started here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, needed

SIDES = ("api", "proxy")
#: Of 100, the less the better; what is left is network, which both sides are for.
MOST_EXPOSED = 15


@pytest.fixture
def unit(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A unit whose program is the one of this environment."""
    name = f"ers-{request.param}.service"
    text = (DEPLOY / "systemd" / name).read_text()
    installed = "/opt/encrypted-records/bin/ers"
    assert f"ExecStart={installed} {request.param}\n" in text
    path = tmp_path / name
    path.write_text(text.replace(installed, str(Path(sys.executable).with_name("ers"))))
    return path


def analyzed(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = needed("systemd-analyze")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("unit", SIDES, indirect=True)
def test_a_unit_has_no_mistake(unit: Path) -> None:
    done = analyzed("verify", "--man=no", unit)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_mistake_would_be_found(tmp_path: Path) -> None:
    path = tmp_path / "wrong.service"
    path.write_text("[Service]\nExecStart=/bin/true\nProtectSytem=strict\n")
    assert "ProtectSytem" in analyzed("verify", "--man=no", path).stderr


@pytest.mark.parametrize("unit", SIDES, indirect=True)
def test_a_unit_leaves_its_service_few_rights(unit: Path) -> None:
    limit = f"--threshold={MOST_EXPOSED}"
    done = analyzed("security", "--offline=true", "--no-pager", limit, unit)
    assert done.returncode == 0, done.stdout


def test_the_users_can_be_made() -> None:
    done = subprocess.run(
        [needed("systemd-sysusers"), "--dry-run", DEPLOY / "systemd" / "sysusers.conf"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Failed" not in done.stderr
