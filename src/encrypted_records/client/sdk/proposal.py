"""A frame, or a class of records -> the definition of a schema for them.

Declared types are kept, and so is what must not be missing. A kind of value that no field has is
refused by the name of its column.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Any, get_type_hints, is_typeddict

import msgspec
from msgspec import inspect

from encrypted_records.client.sdk.frames import ColumnFacts, field_of, is_frame, is_of
from encrypted_records.errors import InvalidSetting
from encrypted_records.model import field_types
from encrypted_records.model.field_types import TYPES, proposed_type
from encrypted_records.model.field_types.calendar import DATE

#: Decimals of numbers that are declared without any, and the power of ten that bounds them.
_DECIMALS = 9
_PADDED = 63

#: Types that a class may declare, by their names in ``msgspec.inspect``.
_DECLARED = {kind.frame.declared: kind for kind in TYPES if kind.frame.declared}

Field = tuple[dict[str, Any], str | None]


@dataclass(frozen=True)
class Proposal:
    """``notes`` say, by field, what is worth a look."""

    definition: Mapping[str, Any]
    notes: Mapping[str, str]


def proposal_of(source: Any) -> Proposal:
    """
    Args:
        source: a frame of pandas or Polars, or a table of Arrow; a dataclass, ``msgspec.Struct``,
            Pydantic model or ``TypedDict``; or a definition, which is taken as it is.

    Raises:
        InvalidSetting: it is none of these, or holds values that no field can have.
    """
    if isinstance(source, Mapping):
        return Proposal(source, {})
    if is_frame(source):
        fields, required = _of_frame(source)
    elif isinstance(source, type):
        fields, required = _of_class(source)
    else:
        raise _unknown(type(source).__name__)
    notes = {name: note for name, (_, note) in fields.items() if note}
    made = field_types.propose_definition(
        {name: field for name, (field, _) in fields.items()}, required
    )
    return Proposal(made, notes)


def _unknown(name: str) -> InvalidSetting:
    return InvalidSetting(
        f"a schema cannot be made of {name}",
        hint="give a definition, a frame of pandas, Polars or Arrow, a dataclass, a msgspec.Struct,"
        " a Pydantic model or a TypedDict",
    )


def _refused(column: str, why: str, hint: str = "") -> InvalidSetting:
    return InvalidSetting(
        f"{column}: {why}", hint=hint or "leave the column out, or turn it into texts"
    )


# --- frames -------------------------------------------------------------------------------------


def _of_frame(frame: Any) -> tuple[dict[str, Field], list[str]]:
    fields: dict[str, Field] = {}
    required: list[str] = []
    for name, declared, column, special in _columns(frame):
        if name in fields:
            raise _refused(name, "two columns have this name", "name each column differently")
        seen = ColumnFacts()
        for chunk in column.chunks:
            seen.add(chunk, declared)
        field, note = special or field_of(declared, seen)
        # A text takes no number, and rounding is nothing that a proposal does.
        if _is_number(declared.type) and not proposed_type(field).is_number:
            raise _refused(
                name,
                f"has {seen.digits} digits before the point and {seen.decimals} after it; a"
                f" field keeps {field_types.MAX_DIGITS} in all",
                "round the column, or turn it into texts",
            )
        fields[name] = field, note
        if not declared.nullable:
            required.append(name)
    return fields, required


def _columns(frame: Any) -> Iterator[tuple[str, Any, Any, Field | None]]:
    """Name, field and chunks of Arrow of each column, and the field it becomes where Arrow alone
    does not tell."""
    try:
        import pyarrow  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        raise InvalidSetting(
            "pyarrow is not installed", hint="pip install encrypted-records[arrow]"
        ) from None
    if is_of(frame, "pandas", "DataFrame"):
        for at, name in enumerate(map(_named, frame.columns)):
            column = frame.iloc[:, at]
            try:
                cells = pyarrow.array(column, from_pandas=True)
            except (pyarrow.ArrowException, TypeError, ValueError):
                raise _refused(
                    name, "contains values of several kinds, or of an unknown one"
                ) from None
            chunks = pyarrow.chunked_array(cells) if hasattr(cells, "chunks") else cells
            chunks = chunks if hasattr(chunks, "chunks") else pyarrow.chunked_array([cells])
            declared = pyarrow.field(name, chunks.type)
            yield name, declared, chunks, _of_pandas(column, declared)
        return
    if hasattr(frame, "collect"):
        frame = frame.collect()
    table = frame.to_arrow() if is_of(frame, "polars", "DataFrame") else frame
    if is_of(table, "pyarrow", "RecordBatch"):
        table = pyarrow.Table.from_batches([table])
    if not is_of(table, "pyarrow", "Table"):
        raise InvalidSetting(
            "the types of a stream are not known before it is read", hint="give a pyarrow.Table"
        )
    for declared, column in zip(table.schema, table.columns, strict=True):
        yield _named(declared.name), declared, column, None


def _named(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidSetting("a column of the frame has no name", hint="name the columns")
    return name


def _of_pandas(column: Any, declared: Any) -> Field | None:
    """A field for types that pandas lacks: days, and whole numbers some of which are missing."""
    from pyarrow import types  # noqa: PLC0415 - optional, and slow to import

    if types.is_floating(declared.type):
        present = column.dropna()
        has_whole_numbers = len(present) and all(
            isfinite(value) and value == int(value) for value in present
        )
        if (
            has_whole_numbers
            and abs(present).max() <= 2**53
            and not field_types.is_amount(declared.name)
        ):
            return field_types.propose_whole_number(), "decimals that are all whole: whole numbers"
    if types.is_timestamp(declared.type) and declared.type.tz is None:
        present = column.dropna()
        if len(present) and bool((present.dt.normalize() == present).all()):
            return DATE.propose(), "all at midnight: days"
    return None


def _is_number(kind: Any) -> bool:
    from pyarrow import types  # noqa: PLC0415 - optional, and slow to import

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


# --- classes ------------------------------------------------------------------------------------


def _of_class(source: type) -> tuple[dict[str, Field], list[str]]:
    fields: dict[str, Field] = {}
    required: list[str] = []
    for name, kind, limits, needed in _members(source):
        field, note, is_optional = _declared(name, kind, limits)
        fields[name] = field, note
        if needed and not is_optional:
            required.append(name)
    return fields, required


def _members(source: type) -> Iterator[tuple[str, Any, dict[str, Any], bool]]:
    """Name, type, limits and whether it must be given, of each member of a class."""
    of_pydantic = getattr(source, "model_fields", None)
    if is_of_class(source, "pydantic", "BaseModel") and of_pydantic is not None:
        for name, field in of_pydantic.items():
            yield (
                name,
                _inspected(name, field.annotation),
                _limits(field.metadata),
                field.is_required(),
            )
        return
    if not (
        dataclasses.is_dataclass(source)
        or is_typeddict(source)
        or issubclass(source, msgspec.Struct)
    ):
        raise _unknown(source.__name__)
    members = _inspected(source.__name__, source).fields
    if is_typeddict(source):  # which msgspec has in the order of the alphabet
        order = list(get_type_hints(source))
        members = sorted(members, key=lambda member: order.index(member.name))
    for field in members:
        yield field.encode_name, field.type, {}, field.required


def is_of_class(source: type, library: str, name: str) -> bool:
    known = getattr(sys.modules.get(library), name, None)
    return known is not None and issubclass(source, known)


def _inspected(name: str, annotation: Any) -> Any:
    try:
        return inspect.type_info(annotation)
    except (TypeError, NameError) as error:
        raise _refused(name, f"its type is not known: {error}", "give a definition") from None


def _limits(metadata: Any) -> dict[str, Any]:
    """The limits that Pydantic keeps beside a type."""
    known = ("ge", "gt", "le", "lt", "max_length", "decimal_places", "max_digits")
    return {
        key: getattr(annotation, key)
        for annotation in metadata
        for key in known
        if getattr(annotation, key, None) is not None
    }


def _declared(
    name: str, kind: Any, limits: dict[str, Any]
) -> tuple[dict[str, Any], str | None, bool]:
    is_optional = False
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        present = [given for given in kind.types if not isinstance(given, inspect.NoneType)]
        is_optional = len(present) < len(kind.types)
        if len(present) != 1:
            raise _refused(name, "may be of several types", "give a definition")
        kind = present[0]
    for key in ("ge", "gt", "le", "lt", "max_length"):
        if getattr(kind, key, None) is not None:
            limits = {key: getattr(kind, key), **limits}
    return *_field_of_type(name, kind, limits), is_optional


def _field_of_type(name: str, kind: Any, limits: dict[str, Any]) -> Field:
    shown = type(kind).__name__
    if getattr(kind, "tz", None) is False:
        shown += " without tz"
    if shown in _DECLARED:
        return _DECLARED[shown].propose(), _DECLARED[shown].frame.note
    match kind:
        case inspect.IntType():
            low, high = _bounds(limits, 1)
            return field_types.propose_whole_number(
                -field_types.WHOLE if low is None else int(low),
                field_types.WHOLE if high is None else int(high),
            ), None
        case inspect.FloatType() | inspect.DecimalType():
            return _number(limits)
        case inspect.StrType():
            return _text(limits.get("max_length")), None
        case inspect.EnumType() | inspect.LiteralType():
            return _choices(name, kind), None
    shown = type(kind).__name__.removesuffix("Type").lower()
    raise _refused(name, f"values of type {getattr(kind, 'cls', None) or shown} cannot be stored")


def _text(longest: int | None) -> dict[str, Any]:
    if longest is None:
        return field_types.propose_text(0)
    return {"type": "string", "maxLength": longest, "padTo": min(4 * longest, _PADDED)}


def _bounds(limits: dict[str, Any], step: Any) -> tuple[Any, Any]:
    low, high = limits.get("ge"), limits.get("le")
    if low is None and limits.get("gt") is not None:
        low = limits["gt"] + step
    if high is None and limits.get("lt") is not None:
        high = limits["lt"] - step
    return low, high


def _number(limits: dict[str, Any]) -> Field:
    decimals, digits = limits.get("decimal_places"), limits.get("max_digits")
    low, high = (bound if bound is None else Decimal(str(bound)) for bound in _bounds(limits, 0))
    before = max((abs(bound).adjusted() + 1 for bound in (low, high) if bound), default=_DECIMALS)
    if digits is not None:
        before = max(digits - (decimals or 0), 1)
    precision = min(_DECIMALS, field_types.MAX_DIGITS - before) if decimals is None else decimals
    field = field_types.propose_number(precision, min(before, field_types.MAX_DIGITS - precision))
    for key, limit in (("minimum", low), ("maximum", high)):
        if limit is not None and limit == limit.to_integral_value():
            field[key] = int(limit)
    if decimals is not None:
        return field, None
    return field, f"a value with more than {precision} decimals is refused"


def _choices(name: str, kind: Any) -> dict[str, Any]:
    """The type of declared values. A proposed definition does not publish them."""
    values = list(kind.values) if isinstance(kind, inspect.LiteralType) else None
    known = [member.value for member in kind.cls] if values is None else values
    if all(isinstance(value, int) and not isinstance(value, bool) for value in known):
        return field_types.propose_whole_number()
    texts = [value for value in known if isinstance(value, str)]
    if len(texts) == len(known):
        return field_types.propose_text(max(len(text.encode()) for text in texts))
    raise _refused(name, "its values are of several types", "give a definition")
