"""A token of SoftHSM with an AES key: the interface PKCS#11 without hardware."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pkcs11
import pytest

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".venv" / "softhsm"
PIN = "pin-of-the-tests"


@dataclass(frozen=True)
class Token:
    """The module's file, and the labels of a token and of a key in it."""

    module: Path
    label: str
    key: str


def new_token(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Token:
    """A new token with a key, stored in ``folder``; skips where SoftHSM cannot be had."""
    brought = subprocess.run(
        [ROOT / "scripts" / "install-softhsm", HOME], capture_output=True, text=True, check=False
    )
    if brought.returncode:
        pytest.skip("SoftHSM cannot be had here (scripts/install-softhsm)")
    root = Path(brought.stdout.strip() or "/")
    module = root / "usr/lib/softhsm/libsofthsm2.so"
    tokens = folder / "tokens"
    tokens.mkdir()
    settings = folder / "softhsm2.conf"
    settings.write_text(f"directories.tokendir = {tokens}\nlog.level = ERROR\n")
    monkeypatch.setenv("SOFTHSM2_CONF", str(settings))
    subprocess.run(
        [
            *(root / "usr/bin/softhsm2-util", "--module", module, "--init-token", "--free"),
            *("--label", "records", "--pin", PIN, "--so-pin", "so-" + PIN),
        ],
        env={**os.environ, "SOFTHSM2_CONF": str(settings)},
        capture_output=True,
        check=True,
    )
    # The library is loaded once a process; it looks for tokens again when it begins anew.
    library = pkcs11.lib(str(module))
    library.reinitialize()
    with library.get_token(token_label="records").open(rw=True, user_pin=PIN) as session:
        session.generate_key(pkcs11.KeyType.AES, 256, label="keyrings", store=True)
    return Token(module, "records", "keyrings")
