"""The images are built and started. It takes minutes, and Debian's and Python's packages: so it is
done where ERS_TEST_IMAGES=1 is set, by root, with buildah.

The base is the one that the variable ERS_IMAGE_BASE names, else a Debian that debootstrap makes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.files import ROOT, needed
from tests.support.eventually import eventually
from tests.support.service import call, free_ports

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
MINUTES = 30

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(MINUTES * 60),
    pytest.mark.skipif(
        os.environ.get("ERS_TEST_IMAGES") != "1", reason="ERS_TEST_IMAGES=1 is not set"
    ),
]


class Buildah:
    def __init__(self, folder: Path) -> None:
        self._command = [
            needed("buildah"),
            *("--storage-driver", "vfs", "--root", str(folder / "root")),
            *("--runroot", str(folder / "run")),
        ]

    def __call__(self, *arguments: str | Path) -> str:
        done = subprocess.run(
            [*self._command, *map(str, arguments)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*self._command, *arguments], start_new_session=True)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    if os.geteuid() != 0:
        pytest.skip("only root can build images here")
    folder = tmp_path_factory.mktemp("images")
    buildah = Buildah(folder)
    base = os.environ.get("ERS_IMAGE_BASE") or debian(buildah, folder)
    subprocess.run(["make", "--silent", "wheel"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    for side in ("api", "proxy"):
        buildah(
            *("build", "--isolation", "chroot", "--network", "host"),
            *("--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"),
            *("--build-arg", f"BASE={base}", "--target", side, "--tag", f"localhost/ers-{side}"),
            *("--file", "deploy/Containerfile", "."),
        )
    yield buildah
    shutil.rmtree(folder)


def debian(buildah: Buildah, folder: Path) -> str:
    """An image of Debian with Python, made of its packages."""
    tree, archive = folder / "tree", folder / "tree.tar"
    packages = "--include=ca-certificates,python3,python3-venv"
    make: list[str | Path] = [
        needed("debootstrap"),
        "--variant=minbase",
        packages,
        "bookworm",
        tree,
    ]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(archive, "w") as tar:
        tar.add(tree, ".")
    shutil.rmtree(tree)
    (folder / "Containerfile").write_text("FROM scratch\nADD tree.tar /\n")
    name = "localhost/ers-base"
    buildah("build", "--tag", name, "--file", folder / "Containerfile", folder)
    return name


@pytest.mark.parametrize("side", ["api", "proxy"])
def test_an_image_starts_its_side_as_a_user_without_rights(images: Buildah, side: str) -> None:
    container = images("from", f"localhost/ers-{side}")
    run = ("run", "--isolation", "chroot", "--network", "host", container, "--")
    assert images(*run, "id", "-u") == "10001"
    # The other side is not in it.
    other = "proxy" if side == "api" else "api"
    refused = images(*run, "sh", "-c", f"ers {other} --data-dir /tmp/x 2>&1 || true")
    assert f"pip install 'encrypted-records[{other}]'" in refused

    (port,) = free_ports(1)
    started = images.start(*run, "env", f"ERS_{side.upper()}_PORT={port}", "ers", side)
    try:
        path = "/api/status/" if side == "api" else "/help/"
        url = f"http://127.0.0.1:{port}{path}"
        eventually(lambda: _answers(url) or started.poll() is not None, "it answers", pause=0.2)
        assert started.poll() is None
    finally:
        os.killpg(started.pid, signal.SIGTERM)
        started.wait(30)


def _answers(url: str) -> bool:
    try:
        return call("GET", url).status == 200
    except OSError:
        return False
