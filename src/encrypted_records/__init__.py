"""An encrypted record store: rows stay searchable while the server holds ciphertext only."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from encrypted_records.client.proxy.keyring import Proof as Proof
    from encrypted_records.client.proxy.transport import new_device as new_device
    from encrypted_records.client.sdk.async_client import AsyncClient as AsyncClient
    from encrypted_records.client.sdk.sync_client import Client as Client

#: The names that a program may import from here, and their modules.
_CLIENTS = {
    "AsyncClient": "sdk.async_client",
    "Client": "sdk.sync_client",
    "Proof": "proxy.keyring",
    "new_device": "proxy.transport",
}

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    """Import the clients on first use: most importers of this package do not need them."""
    if name not in _CLIENTS:
        raise AttributeError(name)
    return getattr(importlib.import_module(f"{__name__}.client.{_CLIENTS[name]}"), name)
