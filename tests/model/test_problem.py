"""An error becomes an answer and the answer the error again, on the other side of the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records import errors
from encrypted_records.errors import ErsError, Flaw
from encrypted_records.http import problem


def classes(root: type[ErsError] = ErsError) -> list[type[ErsError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in classes(child))]


OURS = [kind for kind in classes() if kind.__module__ == errors.__name__]
FLAWS = (Flaw("minimum", "below the minimum", "/0/data/a~1b", 1, "a/b"), Flaw("type", "a string"))


def test_no_two_errors_have_the_same_code() -> None:
    assert list(errors.BY_CODE.values()) == OURS


def returned(error: ErsError, **more: Any) -> ErsError:
    body = json.dumps(problem.of_error(error)).encode()
    return problem.to_error(problem.status_of(error), body, **more)


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_an_error_comes_back_with_everything_it_said(kind: type[ErsError]) -> None:
    error = kind("what happened", hint="what to do", flaws=FLAWS)
    found = returned(error, retry_after=7)
    assert found.reason == kind.code
    assert found.message == error.message
    assert found.hint == error.hint
    assert found.flaws == error.flaws
    assert found.retry_after == 7


#: Failures of the other side's own become ApiFailed: they are not this side's to name.
OWN_FAILURES: set[type[ErsError]] = {
    *(errors.ErsError, errors.Startup, errors.Unavailable, errors.ApiFailed, errors.NotInstalled)
}


@pytest.mark.parametrize(
    "kind",
    [kind for kind in OURS if kind not in OWN_FAILURES | {errors.Refused}],
    ids=lambda kind: kind.__name__,
)
def test_an_error_comes_back_as_its_class_or_one_that_is_answered_alike(
    kind: type[ErsError],
) -> None:
    """Refused itself is a branch that nothing raises."""
    found = returned(kind("what happened"))
    assert isinstance(kind("what happened"), type(found))
    assert problem.status_of(found) == problem.status_of(kind("what happened"))
    assert problem.of_error(found) == problem.of_error(kind("what happened"))


def _by_name(kinds: set[type[ErsError]]) -> list[type[ErsError]]:
    return sorted(kinds, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", _by_name(OWN_FAILURES))
def test_a_failure_of_the_other_side_comes_back_as_one_of_the_api(kind: type[ErsError]) -> None:
    found = returned(kind("what happened"))
    assert type(found) is errors.ApiFailed
    assert found.reason == kind.code


def test_what_must_fail_closed_comes_back_as_exactly_what_it_was() -> None:
    for kind in (errors.KeyMissing, errors.DoesNotOpen, errors.LogBroken):
        assert type(returned(kind("no"))) is kind
    for other in (errors.StaleDefinition, errors.MergeFirst, errors.ApiTimeout):
        assert type(returned(other("no"))) is other


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (errors.Malformed, 400),
        (errors.InvalidRecords, 400),
        (errors.TooLarge, 413),
        (errors.NotAuthenticated, 401),
        (errors.NotAllowed, 403),
        (errors.NotFound, 404),
        (errors.StaleDefinition, 409),
        (errors.MergeFirst, 429),
        (errors.Throttled, 429),
        (errors.Unsupported, 415),
        (errors.DoesNotOpen, 422),
        (errors.ApiUnreachable, 502),
        (errors.ApiTimeout, 504),
        (errors.Startup, 500),
        (ErsError, 500),
    ],
)
def test_the_nearest_class_decides_the_status(kind: type[ErsError], status: int) -> None:
    assert problem.status_of(kind("no")) == status


def test_a_document_has_the_members_of_rfc_9457_and_ours() -> None:
    error = errors.InvalidRecords("2 of the records do not fit", code="narrower", flaws=FLAWS)
    assert problem.of_error(error) == {
        "type": "/help/errors/narrower/",
        "title": "The request is not valid",
        "status": 400,
        "detail": "2 of the records do not fit",
        "code": "narrower",
        "hint": errors.InvalidRecords.default_hint,
        "errors": [
            {
                "pointer": "/0/data/a~1b",
                "row": 1,
                "field": "a/b",
                "code": "minimum",
                "detail": "below the minimum",
            },
            {"code": "type", "detail": "a string"},
        ],
    }


def test_a_document_without_hint_or_flaws_does_not_mention_them() -> None:
    found = problem.of_error(errors.NotFound("nothing is there"))
    assert set(found) == {"type", "title", "status", "detail", "code"}


def test_a_long_list_of_flaws_is_cut_and_counted() -> None:
    flaws = tuple(Flaw("type", "x", row=row) for row in range(1, 1502))
    found = problem.of_error(errors.InvalidRecords("no", flaws=flaws))
    assert len(found["errors"]) == problem.MAX_FLAWS
    assert found["errors_total"] == 1501


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Bad Gateway</html>",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"code": 7}',
        b'{"errors": [{"row": "one"}]}',
        b'{"detail": "\\ud800"}',
        b'{"x": ' + b"[" * 100_000,
    ],
    ids=lambda body: repr(body[:24]),
)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.BadInput),
        (401, errors.NotAuthenticated),
        (404, errors.NotFound),
        (422, errors.Closed),
        (429, errors.Throttled),
        (418, errors.ApiFailed),
        (500, errors.ApiFailed),
        (502, errors.ApiFailed),
        (504, errors.ApiTimeout),
    ],
)
def test_an_answer_that_is_no_problem_document_still_has_its_class(
    body: bytes, status: int, kind: type[ErsError]
) -> None:
    found = problem.to_error(status, body)
    assert type(found) is kind
    assert str(status) in found.message
    assert found.reason == kind.code


@given(st.integers(100, 599), st.binary(max_size=60))
def test_any_answer_is_an_error_of_ours(status: int, body: bytes) -> None:
    assert isinstance(problem.to_error(status, body), ErsError)


def test_every_class_has_a_code_of_its_own_and_every_status_a_title() -> None:
    codes = [kind.code for kind in OURS]
    assert len(set(codes)) == len(codes)
    for status in problem.STATUS.values():
        assert problem.title_of(status) != "Error"
