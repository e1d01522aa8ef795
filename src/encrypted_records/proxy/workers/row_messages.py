"""Messages about rows that are stored, which a worker opens (:mod:`.messages`)."""

from __future__ import annotations

import msgspec

from encrypted_records.model.records import Group

#: In place of the id of a field that is to be gone.
LOST = 0


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A message between the proxy and its workers."""


class SourceRows(Message, frozen=True):
    """Rows of a group from ordinal ``first`` to below ``end``; ``dead`` are those of them that are
    no more, as a roaring bitmap."""

    group: Group
    first: int
    end: int
    dead: bytes


class ResealTask(Message, frozen=True):
    """Open rows and seal them again as groups of their own, as parts of the staging ``staging``.

    ``definition``: the one to seal for, as canonical text; ``earlier``: all that the log holds, in
    its order. ``keys``: the schema's, by version: those of the sources, of ``version``, which
    seals, and of ``tails``. ``rows`` and ``digests`` are answers of the API: the live rows of the
    sources in their order, and what proves them. ``number`` names the part. ``indexed``: whether to
    make a segment of them, too.
    """

    schema: bytes
    organization: bytes
    definition: bytes
    earlier: list[bytes]
    keys: list[tuple[int, bytes]]
    version: int
    sources: list[SourceRows]
    rows: list[bytes]
    digests: list[bytes]
    #: of a new definition, the id of each field that the present one has, and the one that it has
    #: there; of fields whose values may be lost, :data:`LOST` and that
    origins: list[tuple[int, int]]
    staging: bytes
    number: int
    indexed: bool = True


class RebuildTask(Message, frozen=True):
    """Make the segment ``lost`` again, from the rows of its groups.

    ``definition`` to ``version``, ``most`` to ``keep_free``: as of :class:`MergeTask`; ``keys`` has
    those of the groups and of ``tails`` as well. ``groups`` are those that it has by now.
    """

    schema: bytes
    organization: bytes
    definition: bytes
    earlier: list[bytes]
    keys: list[tuple[int, bytes]]
    version: int
    tails: int
    lost: bytes
    groups: list[Group]
    most: int
    folder: str
    keep_free: int


class RowsRequest(Message, frozen=True):
    """The worker needs rows of group number ``group`` of a :class:`RebuildTask`, from ordinal
    ``first`` on."""

    group: int
    first: int


class RowsReply(Message, frozen=True):
    """Rows of the group up to below ordinal ``end``; the rest is as of :class:`ResealTask`."""

    end: int
    sources: list[SourceRows]
    rows: list[bytes]
    digests: list[bytes]
