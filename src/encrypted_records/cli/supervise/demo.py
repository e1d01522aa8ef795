"""The demonstration of ``ers demo`` against the running service, over HTTP through the proxy.

Each run creates a new account, organization and dataset, so that it can be repeated in the same
data folder.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

from encrypted_records.cli import terminal
from encrypted_records.cli.data_folder import wait_for_link
from encrypted_records.cli.settings import Settings
from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.client.proxy.transport import Device, new_device
from encrypted_records.client.sdk.async_client import AsyncClient
from encrypted_records.client.sdk.async_schemas import AsyncSchema
from encrypted_records.errors import InvalidSetting

#: Maximum rows of a result to print.
SHOWN = 5
_NUMBERS = ("integer", "number")


@dataclass(frozen=True)
class Example:
    """Census records and their schema (examples/README.md names the source)."""

    definition: Mapping[str, Any]
    records: Sequence[Mapping[str, Any]]

    @classmethod
    def of_the_package(cls) -> Self:
        """The thousand records that come with the package."""
        folder = files("encrypted_records") / "example_data"
        rows = gzip.decompress((folder / "census.csv.gz").read_bytes())
        return cls._read((folder / "census.schema.json").read_text("utf-8"), rows.decode())

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read census.csv: numbers by the schema's types; empty cells are left out.

        Raises:
            InvalidSetting: the files are not there.
        """
        try:
            definition = (folder / "census.schema.json").read_text("utf-8")
            return cls._read(definition, (folder / "census.csv").read_text("utf-8"))
        except OSError as error:
            raise InvalidSetting(
                f"no example data in {folder}: {(error.strerror or '').lower()}",
                hint="leave out --examples to use the data of the package",
            ) from None

    @classmethod
    def _read(cls, schema: str, rows: str) -> Self:
        definition = json.loads(schema)
        types = {name: spec["type"] for name, spec in definition["properties"].items()}
        table = csv.DictReader(io.StringIO(rows, newline=""))
        return cls(definition, [_values(row, types) for row in table])


def _values(row: Mapping[str, str], types: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: int(cell) if types[name] in _NUMBERS else cell for name, cell in row.items() if cell
    }


async def show(settings: Settings, example: Example) -> None:
    """Register, store, search; print the results and the duration of each step."""
    address = f"demo-{secrets.token_hex(4)}@example.org"
    password = secrets.token_urlsafe(15)
    await _open_account(settings, address, password)
    device = await _device_for(settings, address, password)
    async with AsyncClient(
        settings.proxy_url, email=address, password=password, device=device
    ) as client:
        with _step("create a dataset and a schema with 15 fields"):
            dataset = await client.create_dataset("Census")
            schema = await dataset.create_schema("Adult", example.definition)
        with _step(f"encrypt and store {len(example.records)} records"):
            await schema.ingest(example.records, progress=True)
        await _search(schema)
    terminal.say(f"Open {settings.proxy_url} in a browser, and log in with:")
    terminal.say(f"  account   {address}")
    terminal.say(f"  password  {password}")
    if device is not None:
        terminal.say(f"  device    {device.secret.text}   (for programs: header X-ERS-Device)")
    terminal.say(f"With curl: {settings.proxy_url}/help/quickstart/; the schema is {schema.url}")


async def _device_for(settings: Settings, address: str, password: str) -> Device | None:
    """A device for the new keyring, if the proxy requires devices."""
    async with ProxyClient(settings.proxy_url, email=address, password=password) as client:
        return new_device() if (await client.devices()).level == "device" else None


async def _open_account(settings: Settings, address: str, password: str) -> None:
    """Register and verify an account."""
    async with ProxyClient(settings.proxy_url) as client:
        with _step(f"register {address}"):
            await client.register(
                email=address,
                password=password,
                organization_name=f"Demo of {address.partition('@')[0]}",
            )
        with _step("verify the address with the link from its mail"):
            link = await wait_for_link(settings.data_dir / "mail", address)
            await client.verify_registration(
                user_id=link.user_id, timestamp=link.timestamp, signature=link.signature
            )


async def _search(schema: AsyncSchema) -> None:
    fields = ["age", "occupation", "education", "hours_per_week", "native_country"]
    for label, where in (
        ("exact search: native_country = Cuba", "native_country = 'Cuba'"),
        ("range search: age from 70 to 79", "age between 70 and 79"),
    ):
        with _step(label):
            records = [
                record.data async for record in schema.search(where, fields=fields, limit=SHOWN)
            ]
            count = await schema.count(where)
        terminal.say()
        for line in terminal.table(records, fields):
            terminal.say(f"    {line}")
        terminal.say(f"    {len(records)} of {count} records")
        terminal.say()


@contextmanager
def _step(label: str) -> Iterator[None]:
    """Time a step; its line is printed when it has succeeded."""
    start = time.perf_counter()
    yield
    terminal.say(f"{time.perf_counter() - start:7.3f} s  {label}")
