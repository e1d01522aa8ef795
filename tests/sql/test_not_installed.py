"""Without the extra ``sql``, what needs it says what to install."""

from __future__ import annotations

import subprocess
import sys

#: A Python in which neither library is installed.
WITHOUT = """
import sys, importlib.util as util
found = util.find_spec
util.find_spec = lambda name, *rest: None if name in ("pyarrow", "duckdb") else found(name, *rest)
sys.modules["pyarrow"] = sys.modules["duckdb"] = None
"""


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + script], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_proxy_without_pyarrow_starts_and_says_what_to_install() -> None:
    told = run(
        """
from encrypted_records.proxy import app
from encrypted_records.proxy.api.columns import require_arrow
from encrypted_records.errors import NotInstalled
try:
    require_arrow()
except NotInstalled as error:
    print(error.hint)
"""
    )
    assert "pip install 'encrypted-records[sql]'" in told
