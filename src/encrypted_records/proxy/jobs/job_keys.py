"""The index keys of a job's rows in one schema, as small numbers. Pure.

Rows of one number have equal values, and so have stored rows that :meth:`SetCodes.of_segment` gives
that number: both sides are sorted keys, which are merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encrypted_records.index.columns.column import Keys
from encrypted_records.index.columns.rebase import Rebase
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.proxy.workers.messages import SchemaRows

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class FieldCodes:
    """``keys`` are sorted and all different; of each row 0 where it lacks the field, else 1 + the
    index of its key."""

    keys: Keys
    codes: Numbers


@dataclass(frozen=True, eq=False)
class JobKeys:
    """``rows`` and ``chunks`` are each row's number in the upload, ascending, and its chunk's."""

    rows: Numbers
    chunks: Numbers
    fields: Mapping[int, FieldCodes]

    @classmethod
    def of(cls, parts: Sequence[tuple[int, SchemaRows]]) -> JobKeys:
        """
        Args:
            parts: by number of the chunk, ascending; at least one.
        """
        rows = [np.frombuffer(part.rows, np.uint32).astype(np.int64) for _, part in parts]
        chunks = [
            np.full(len(own), number, np.int64)
            for own, (number, _) in zip(rows, parts, strict=True)
        ]
        fields: dict[int, FieldCodes] = {}
        for at, field in enumerate(parts[0][1].fields):
            own = [part.fields[at] for _, part in parts]
            present = np.concatenate([np.frombuffer(column.present, np.bool_) for column in own])
            keys = np.concatenate([np.frombuffer(column.keys, column.dtype) for column in own])
            distinct, places = np.unique(keys, return_inverse=True)
            codes: Numbers = np.zeros(len(present), np.int64)
            codes[present] = places + 1
            fields[field.field] = FieldCodes(distinct, codes)
        return cls(np.concatenate(rows), np.concatenate(chunks), fields)


@dataclass(frozen=True, eq=False)
class SetCodes:
    """The rows' values of one set of fields as integers: 0 if a row lacks one of the fields,
    otherwise a number up to ``count`` that is equal for rows with equal values.
    """

    fields: tuple[int, ...]
    codes: Numbers
    count: int
    #: of each field but the first: how many codes it has, and the pairs that there are
    _steps: Sequence[tuple[int, Numbers]]

    @classmethod
    def of(cls, keys: JobKeys, fields: Sequence[int]) -> SetCodes:
        first, *others = (keys.fields[number] for number in fields)
        codes, count = first.codes, len(first.keys)
        steps: list[tuple[int, Numbers]] = []
        for other in others:
            width = len(other.keys) + 1
            whole = (codes > 0) & (other.codes > 0)
            pairs, places = np.unique(
                codes[whole] * width + other.codes[whole], return_inverse=True
            )
            codes = np.zeros(len(codes), np.int64)
            codes[whole] = places + 1
            count = len(pairs)
            steps.append((width, pairs))
        return cls(tuple(fields), codes, count, steps)

    def of_segment(
        self,
        keys: JobKeys,
        part: Candidates,
        made: SchemaDefinition,
        compared: SchemaDefinition,
    ) -> Numbers:
        """The number of each row of a segment, 0 where no row of the job has its values.

        Args:
            part: rows of a segment whose columns of these fields are here.
            made: the definition under which the job's rows were checked.
            compared: the one whose grids the segment's keys are on.

        Raises:
            DoesNotOpen: a column does not open, or a key lies outside of its grid.
        """
        codes: Numbers | None = None
        steps = iter(self._steps)
        for number in self.fields:
            own = _map(keys.fields[number].keys, part, number, made, compared)
            if codes is None:
                codes = own
                continue
            width, pairs = next(steps)
            codes = np.where((codes > 0) & (own > 0), codes * width + own, -1)
            codes = _places(pairs, codes)
        assert codes is not None
        return codes


def _map(
    keys: Keys,
    part: Candidates,
    number: int,
    made: SchemaDefinition,
    compared: SchemaDefinition,
) -> Numbers:
    """The code of each row's key among ``keys``, or 0."""
    name = compared.by_id[number].name
    held = part.dictionary(name)
    own: Numbers = np.zeros(len(held.keys) + 1, np.int64)
    if len(keys) and len(held.keys):
        rebase = Rebase.between(made.by_id[number], compared.by_id[number])
        sought = keys if rebase is None else rebase.keys(keys)
        own[1:] = _places(sought, held.keys.astype(sought.dtype))
    mapped: Numbers = own[part.codes(name)]
    return mapped


def _places(among: Keys, wanted: Keys) -> Numbers:
    """1 + where each is in a sorted array, 0 where it is not."""
    if not len(among):
        return np.zeros(len(wanted), np.int64)
    at = np.searchsorted(among, wanted)
    at[at == len(among)] = 0
    found: Numbers = np.where(among[at] == wanted, at + 1, 0)
    return found
