"""Keys stay in the proxy's memory: no core dumps, no heirs of its secrets, no swap."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

from tests.support.service import clean_environment, running_service

_HARDENED = """
import ctypes
from encrypted_records.proxy.process import harden
harden()
harden()
held = bytearray(1 << 20)
print("dumpable", ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
print(open("/proc/self/limits").read())
print(open("/proc/self/status").read())
"""

#: A proxy's start as far as its secrets go, and a child that waits to be looked at.
_PARENT = """
import os, subprocess, sys
from pathlib import Path
from encrypted_records.proxy.keyrings.files import secrets_from
secrets_from(os.environ, Path(sys.argv[1]))
child = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); input()"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
sys.stdout.buffer.write(Path(f"/proc/{child.pid}/environ").read_bytes())
child.communicate(b"\\n")
"""


def test_no_process_of_a_service_leaves_a_core_dump(tmp_path: Path) -> None:
    # Not as a fork of a process that has imported everything, but as people start it.
    program = (sys.executable, "-m", "encrypted_records")
    with running_service(tmp_path / "data", program=program) as service:
        processes = [service.process.pid, *service.children()]
        limits = [resource.prlimit(pid, resource.RLIMIT_CORE) for pid in processes]
    assert len(limits) >= 3
    assert set(limits) == {(0, 0)}


def test_a_hardened_process_is_closed_to_others_and_goes_on_whatever_the_system_allows() -> None:
    for limit in ("", "import resource; resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))\n"):
        done = subprocess.run(
            [sys.executable, "-c", limit + _HARDENED], capture_output=True, text=True, check=True
        )
        assert "dumpable 0" in done.stdout
        assert re.search(r"^Max core file size +0 +0 ", done.stdout, re.MULTILINE)
        locked = re.search(r"^VmLck:\s+(\d+) kB", done.stdout, re.MULTILINE)
        capabilities = re.search(r"^CapEff:\s+([0-9a-f]+)", done.stdout, re.MULTILINE)
        unlimited = re.search(r"^Max locked memory +unlimited", done.stdout, re.MULTILINE)
        assert locked and capabilities
        may_lock = bool(unlimited) or bool(int(capabilities[1], 16) >> 14 & 1)
        assert (int(locked[1]) > 0) == may_lock


def test_no_child_of_the_proxy_inherits_a_passphrase(tmp_path: Path) -> None:
    secret = "seven wet kettles 1815"
    done = subprocess.run(
        [sys.executable, "-c", _PARENT, str(tmp_path)],
        env=clean_environment(ERS_KEYRING_PASSPHRASE=secret, ERS_KEYRING_KEYCHAIN="off"),
        capture_output=True,
        check=True,
    )
    assert b"PATH=" in done.stdout
    assert secret.encode() not in done.stdout
    assert b"ERS_KEYRING" not in done.stdout
