"""An encrypted record store: rows stay searchable while the server holds ciphertext only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from encrypted_records.client.objects import AsyncClient as AsyncClient
    from encrypted_records.client.synchronous import Client as Client

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The clients, which most of what imports this package has no use for."""
    if name == "Client":
        from encrypted_records.client.synchronous import Client  # noqa: PLC0415

        return Client
    if name == "AsyncClient":
        from encrypted_records.client.objects import AsyncClient  # noqa: PLC0415

        return AsyncClient
    raise AttributeError(name)
