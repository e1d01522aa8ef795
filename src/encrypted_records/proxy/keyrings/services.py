"""Keyrings of services: in memory alone, made of the string that a request brings.

Work that was accepted goes on with the keyring of the request that began it. After a restart it
waits until the service comes again.
"""

from __future__ import annotations

from collections import OrderedDict

from encrypted_records.crypto.keys import Keyring, RootKey
from encrypted_records.proxy.keyrings.holder import Holder

#: Services whose keyrings stay in memory.
_KEPT = 256


class ServiceKeyrings:
    """Safe to use from several threads: each step is one operation on a dictionary."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Keyring] = OrderedDict()

    def of(self, holder: Holder) -> Keyring | None:
        """The keyring of a service that shows its string, or whose work was accepted here; None
        for everybody else."""
        service = holder.service
        if service is None:
            return self._known.get(holder.user) if holder.accepted else None
        known = self._known.get(service.id)
        if known is None or known.roots[1].export() != service.secret:
            known = self._known[service.id] = Keyring({1: RootKey(service.secret)})
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return known
