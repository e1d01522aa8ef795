"""Programs with Django in their own process, on the data of an API that does not run any more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.server.api import running_api
from tests.support.service import clean_environment


def run_program(module: str, folder: Path, database_url: str | None) -> Any:
    """What the module says as JSON. Its arguments are a data folder with an account, the URL of the
    database or nothing, and a file with the members of the account.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    with running_api(folder, database_url=database_url) as api:
        account = api.new_account()
    members = ("email", "password", "token", "organization")
    credentials = folder / "credentials"
    credentials.write_text(json.dumps({name: getattr(account, name) for name in members}))
    ran = subprocess.run(
        [sys.executable, "-m", module, folder / "data", database_url or "", credentials],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(ran.stdout)
