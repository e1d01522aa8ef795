"""The answer to an aggregate, for programs: a number, numbers by their measures, or groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from encrypted_records.errors import ApiFailed, InvalidSetting


class Measures(Mapping[str, Any]):
    """Results by their measures, as these were written. ``raw`` is the whole answer."""

    def __init__(self, results: Mapping[str, Any], raw: Mapping[str, Any]) -> None:
        self._results = results
        self.raw = raw

    def __getitem__(self, measure: str) -> Any:
        return self._results[measure]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        return f"<Measures {', '.join(self._results)}>"


class Groups(Sequence[Mapping[str, Any]]):
    """Groups in their order, each with the values of its fields and its results by measure, which
    is called ``measure count`` where a field is called ``count``.

    Attributes:
        columns: what each group has.
        total: how many groups there are; ``limit`` may have left some out.
        raw: the whole answer.
    """

    def __init__(
        self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str], raw: Mapping[str, Any]
    ) -> None:
        self._rows = list(rows)
        self.columns = list(columns)
        self.raw = raw
        self.total = int(raw["total"])

    @overload
    def __getitem__(self, at: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Mapping[str, Any]]: ...
    def __getitem__(self, at: int | slice) -> Any:
        return self._rows[at]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<Groups: {len(self)} of {self.total}, with {', '.join(self.columns)}>"

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each group; numbers keep their kind."""
        return _library("pandas").DataFrame(self._rows, columns=self.columns)

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table`` with a row for each group, exact."""
        columns = {name: [row.get(name) for row in self._rows] for name in self.columns}
        return _library("pyarrow").table(columns)

    def to_polars(self) -> Any:
        """A ``polars.DataFrame`` with a row for each group."""
        return _library("polars").from_arrow(self.to_arrow())


def _library(name: str) -> Any:
    import importlib  # noqa: PLC0415 - only frames need it

    try:
        return importlib.import_module(name)
    except ImportError:
        raise InvalidSetting(f"{name} is not installed", hint=f"pip install {name}") from None


def own_column(name: str, kind: str, fields: Collection[str]) -> str:
    """The name of a column that is not a field, beside those of ``fields``: ``name``, and where a
    field is called so, ``kind`` and ``name``, such as ``record id``."""
    while name in fields:
        name = f"{kind} {name}"
    return name


def name_measures(texts: Iterable[str], fields: Collection[str]) -> dict[str, str]:
    """The name of each measure's column beside the fields of groups: as the measure was
    written, and where a field is called so, ``measure count``."""
    return {text: own_column(text, "measure", fields) for text in texts}


def read_answer(answer: Mapping[str, Any], texts: Sequence[str], group_by: Any) -> Any:
    """The result of an aggregation: of one measure its result, of several :class:`Measures`, of
    groups :class:`Groups`.

    Args:
        texts: the measures, as they were written.
        group_by: the fields of the groups; None without groups.

    Raises:
        ApiFailed: the answer is not of the expected form.
    """
    try:
        if group_by is None:
            results = _results(answer, texts)
            return results[texts[0]] if len(texts) == 1 else Measures(results, answer)
        fields = [
            grouping if isinstance(grouping, str) else grouping["field"] for grouping in group_by
        ]
        named = name_measures(texts, fields)
        rows = [
            {
                **group["group"],
                **{named[text]: each for text, each in _results(group, texts).items()},
            }
            for group in answer["groups"]
        ]
        return Groups(rows, [*fields, *named.values()], answer)
    except (KeyError, TypeError, ValueError):
        raise ApiFailed("the aggregate is not of the expected form") from None


def _results(answer: Mapping[str, Any], texts: Sequence[str]) -> dict[str, Any]:
    results = {}
    for text, measure in zip(texts, answer["measures"], strict=True):
        rest = {name: measure[name] for name in measure if name not in ("op", "field")}
        results[text] = rest["value"] if set(rest) == {"value"} else rest
    return results
