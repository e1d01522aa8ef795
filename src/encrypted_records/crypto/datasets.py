"""The key of a dataset in one epoch, and the keys of its schemas below it.

Random, and never derived from an older one: who had that one would have this one too. The
commitment is public, in the roster, so that no two members are given different keys of one epoch
(docs/SPEC.md, section 15.3).
"""

from __future__ import annotations

from functools import cached_property

from cryptography.hazmat.primitives import constant_time

from encrypted_records import runtime
from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.crypto.secret import Secret


class DatasetKey(Secret):
    """D[e], of one dataset in one epoch."""

    def __init__(self, secret: bytes, *, organization: bytes, dataset: bytes, epoch: int) -> None:
        super().__init__(secret)
        self.organization = organization
        self.dataset = dataset
        self.epoch = epoch

    @classmethod
    def generate(cls, organization: bytes, dataset: bytes, epoch: int) -> DatasetKey:
        """A key that owes nothing to any other."""
        drawn = runtime.random_bytes(fmt.KEY_BYTES)
        return cls(drawn, organization=organization, dataset=dataset, epoch=epoch)

    def export(self) -> bytes:
        """The 32 bytes, for grants alone."""
        return self._secret

    @cached_property
    def commitment(self) -> bytes:
        """32 bytes that no other key of this dataset and epoch has, and that tell nothing of it."""
        epoch = self.epoch.to_bytes(4, "big")
        return self._derive(fmt.COMMITMENT, self.organization, self.dataset, epoch)

    def fits(self, commitment: bytes) -> bool:
        """Whether this is the key that was committed to; in constant time."""
        return constant_time.bytes_eq(self.commitment, commitment)

    def schema(self, schema: bytes) -> SchemaKey:
        """The key of one schema of the dataset, in this epoch.

        Args:
            schema: 16-byte identifier.
        """
        epoch = self.epoch.to_bytes(4, "big")
        return SchemaKey(
            self._derive(fmt.SCHEMA, self.organization, schema, epoch),
            organization=self.organization,
            schema=schema,
            version=self.epoch,
        )
