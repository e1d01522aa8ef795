"""Organizations from before there were rosters: they have a record that nobody signed.

They go on as they were: keys come from their members' keyrings, and commits have no signatures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.server.api import PERSON, Api
from tests.server.api import Account as ApiAccount
from tests.server.writer import Writer, person
from tests.support.service import Account, Service, call
from tests.support.store import Store, new_schema


def make_older(service: Service, account: Account) -> None:
    """Give an account's organization such a record, in a dataset and a schema of its own."""
    made = call(
        "POST",
        f"{service.base_url}/api/datasets/",
        {"name": "before", "organization": account.organization},
        auth=account.auth,
    )
    assert made.status == 201, made.body
    body = {"name": "before", "dataset": made.json()["url"], "schema": PERSON}
    schema = call("POST", f"{service.base_url}/api/schemas/", body, auth=account.auth).json()
    credentials = {"email": account.email, "password": account.password}
    token = call("POST", f"{service.base_url}/api/token/", credentials).json()["access"]
    port = urlsplit(service.base_url).port
    assert port is not None
    api = Api(service.process, port, Path(service.data_dir), Path(service.log_file))
    own = ApiAccount(api, account.email, account.password, token, account.organization)
    writer = Writer(own, schema)
    writer.send(writer.adding([person()]))


def older_store(service: Service, definition: Any) -> Store:
    """As :func:`tests.support.store.new_store`, of such an organization."""
    account = service.new_account()
    make_older(service, account)
    return Store(service, account, new_schema(service, account, definition))
