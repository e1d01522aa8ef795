"""What lasts is not searched for cycles again and again: nobody is answered meanwhile."""

from __future__ import annotations

import gc
import json
import secrets
import subprocess
import sys
from pathlib import Path

from encrypted_records.model.records import RowRef
from encrypted_records.proxy.search.caches import RowBlock

#: Runs a proxy whose server tells how many objects are searched for cycles, and ends.
_TELLING = """
import gc, json, sys
from pathlib import Path
from encrypted_records.proxy import app
from encrypted_records.proxy.settings import ProxySettings

class Server:
    def run(self, sockets):
        print(json.dumps([len(gc.get_objects()), gc.get_freeze_count()]))

app.server_of = lambda _app: Server()
folder = Path(sys.argv[1])
app.run(ProxySettings(folder, "127.0.0.1", 0, "http://127.0.0.1:9", access="api"))
"""


def test_what_a_proxy_has_loaded_is_not_searched_for_cycles(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", _TELLING, str(tmp_path)],
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    searched, left_out = json.loads(told.stdout)
    assert left_out > 50_000
    assert searched < 1000


def test_rows_that_are_kept_are_not_searched_for_cycles() -> None:
    group = secrets.token_bytes(16)
    block = RowBlock({RowRef(group, n): b"a row" for n in range(64)}, frozenset(), True)
    assert not gc.is_tracked(block.rows)
