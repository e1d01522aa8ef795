"""A proposed definition for a sample, what of a sample fits a definition, and the estimated cost of
a definition, as JSON. Pure, so that a worker can compute them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from encrypted_records.ingest.estimate import Estimate, Sample, estimate, look_at
from encrypted_records.ingest.infer import Wishes, infer
from encrypted_records.ingest.preview import preview
from encrypted_records.ingest.reading.choices import (
    NOTHING,
    ReadingDifference,
    detect_as,
    notes_on_unused,
    read_again,
    read_said,
)
from encrypted_records.ingest.reading.detect import propose
from encrypted_records.ingest.reading.parser import check_fields
from encrypted_records.ingest.reading.recipe import read_recipe, require_short
from encrypted_records.model.definition_parser import parse_canonical, parse_definition
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.record_formats import Format
from encrypted_records.proxy.workers.messages import DetectTask


def proposal_of(sample: bytes, kind: Format, wishes: Wishes) -> bytes:
    """
    Raises:
        Malformed, InvalidRecords: as :func:`infer`.
    """
    inferred = infer(sample, kind, wishes)
    return msgspec.json.encode(
        {"schema": inferred.definition, "sampled": inferred.sampled, "fields": inferred.fields}
    )


def reading_of(task: DetectTask) -> bytes:
    """
    Raises:
        InvalidRecords, TooLarge: as :func:`detect_as`; also where the schema that is to take the
            file has other fields.
    """
    said = read_said(task.said) if task.said else NOTHING
    schema = None if task.definition is None else parse_canonical(task.definition)
    differences: list[ReadingDifference] = []
    kept = said.reading
    if kept is None and task.kept is not None:
        kept = read_recipe(task.kept)
    if kept is not None:
        found, differences = read_again(task.sample, kept, said, whole=task.whole)
    else:
        texts = (
            [name for name, spec in schema.fields.items() if spec.kind is KeyKind.TEXT]
            if schema
            else ()
        )
        found = detect_as(task.sample, said, whole=task.whole, texts=texts)
    if schema is not None and all(difference.taken for difference in differences):
        check_fields(found.recipe, list(schema.fields), sorted(schema.required))
    require_short(found.recipe)
    definition, fields = propose(found, tight=task.tight)
    return msgspec.json.encode(
        {
            "reading": found.recipe,
            "schema": definition,
            "sampled": found.rows,
            "whole": found.whole,
            "fields": fields,
            "above": found.above,
            "below": found.below,
            "short_rows": found.short,
            "guessed": found.guessed,
            "words": found.words,
            "notes": [*found.notes, *notes_on_unused(said, found.recipe.container)],
            "renamed": found.changed,
            "kept": kept is not None,
            "differences": differences,
        }
    )


def preview_of(
    definition: bytes,
    sample: bytes,
    kind: Format,
    shown: int,
    reading: bytes | None,
    whole: bool,
) -> bytes:
    """
    Raises:
        InvalidDefinition: with all errors.
        Malformed, InvalidRecords, TooLarge: as :func:`preview`.
    """
    recipe = None if reading is None else read_recipe(reading)
    parsed = parse_definition(definition)
    found = preview(parsed, sample, kind, shown=shown, reading=recipe, whole=whole)
    return msgspec.json.encode(found)


def estimate_of(
    definition: bytes,
    records: int,
    string_bytes: Mapping[str, int],
    sample: bytes | None,
    kind: Format,
) -> bytes:
    """
    Raises:
        InvalidDefinition: with all errors.
        TooLarge: as :func:`estimate`.
        Malformed, InvalidRecords: as :func:`look_at`.
    """
    parsed = parse_definition(definition)
    sampled = None if sample is None else look_at(parsed, sample, kind)
    cost = estimate(parsed, records, string_bytes, sampled)
    return msgspec.json.encode(
        {
            "records": cost.records,
            "bytes_per_record": {
                "sealed": round(cost.row_bytes, 1),
                "index": round(cost.index_bytes, 1),
                "total": round(cost.row_bytes + cost.index_bytes, 1),
            },
            "bytes": cost.total_bytes,
            "records_per_second": round(cost.rate),
            "seconds": round(cost.seconds, 1),
            "fields": [
                {
                    "name": field.name,
                    "sealed_bytes": round(field.row_bytes, 1),
                    "index_bytes": round(field.index_bytes, 1),
                    "reveals": dict(field.reveals),
                    **({} if sampled is None else {"lengths": _lengths(field.name, cost, sampled)}),
                }
                for field in cost.fields
            ],
            **({} if sampled is None else {"sample": _sample(cost, sampled)}),
        }
    )


def _lengths(name: str, cost: Estimate, sampled: Sample) -> dict[str, Any]:
    found = sampled.fields[name]
    return {
        "guess": round(found.told.guess, 4),
        "attack": round(found.told.attack, 4),
        "bits": round(found.told.bits, 2),
        "padding": _cost(found.padding, cost, sampled),
        "pad_to": found.pad_to,
        "pad_to_adds": _cost(found.hiding, cost, sampled),
    }


def _sample(cost: Estimate, sampled: Sample) -> dict[str, Any]:
    padding = sum(field.padding for field in sampled.fields.values())
    return {
        "rows": sampled.rows,
        "refused": sampled.refused,
        "padding": _cost(padding, cost, sampled),
    }


def _cost(added: float, cost: Estimate, sampled: Sample) -> dict[str, float]:
    """Bytes a record, and per cent of what a record would take without any padding."""
    padding = sum(field.padding for field in sampled.fields.values())
    bare = cost.row_bytes + cost.index_bytes - padding
    return {"bytes": round(added, 1), "percent": round(100 * added / bare, 1)}
