"""Maintenance of all records of a schema: reseal, erasure, retention.

Made of ``async_care.py`` by ``python -m scripts.synchronous_client``; change it there.
"""

from __future__ import annotations

from typing import Any

from encrypted_records.client.sdk.sync_jobs import Job
from encrypted_records.client.sdk.sync_named import Named


class Care(Named):
    """The maintenance methods of a schema."""

    def reseal(self) -> Job:
        """Seal all records again, under the dataset's newest key; the job that does it.

        Raises:
            Conflict: ``reseal_under_way``, ``nothing_to_reseal``.
        """
        return Job(self._link, self._link.run(self._link.proxy.reseal_schema(self.url)))

    def erase_deleted(self) -> dict[str, Any]:
        """Erase all deleted and changed data now, and wait; returns the receipt, whose ``gone``
        tells whether all of it is erased.
        """
        return self._link.run(self._link.proxy.erase_schema(self.url))

    def look_at_retention(self) -> dict[str, Any]:
        """For how long records stay by the definition (``retention``), and how many ``records`` are
        old enough to go, of ``before`` a day; ``held`` counts further ones that stay, because the
        proxy's clock went ahead, and ``doubt`` says why. Nothing is deleted."""
        return self._link.run(self._link.proxy.look_at_retention(self.url))

    def carry_out_retention(self, *, clock_is_right: bool = False) -> dict[str, Any]:
        """Delete the records whose retention period has ended; returns how many were ``deleted``,
        and how many are ``held`` back because the proxy's clock jumped ahead (``doubt`` gives the
        reason).

        Proxies do this once a day by themselves, when a user with the right to write searches or
        stores.

        Args:
            clock_is_right: confirm that the clock is right, and delete the held records too.

        Raises:
            Conflict: ``no_retention``, ``clock_wrong``; nothing was deleted.
            NotAllowed: ``not_writer``.
        """
        return self._link.run(
            self._link.proxy.carry_out_retention(self.url, clock_is_right=clock_is_right)
        )
