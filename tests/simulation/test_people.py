"""The scenarios (:mod:`.scenarios`) of who may do what, and of what goes: people and their tokens,
erasure, and a log that was put back."""

from __future__ import annotations

from collections.abc import Callable

Holds = Callable[[str], None]


def test_every_flow_of_an_organization_survives_kills_and_lost_answers(holds: Holds) -> None:
    holds("people")


def test_who_was_put_out_changes_nothing_and_nobody_else_loses_anything(holds: Holds) -> None:
    holds("removal")


def test_a_token_that_was_revoked_is_answered_nothing_and_a_limited_token_no_more_than_it_may(
    holds: Holds,
) -> None:
    holds("tokens")


def test_an_api_that_was_put_back_is_noticed_until_each_user_accepts_it(holds: Holds) -> None:
    holds("rollback")


def test_what_is_erased_is_in_no_file_and_exports_have_every_record(holds: Holds) -> None:
    holds("erasure")


def test_records_go_by_their_dates_alone_whoever_writes_and_whatever_is_killed(
    holds: Holds,
) -> None:
    holds("retention")


def test_sealing_again_and_adding_fields_changes_no_record(holds: Holds) -> None:
    holds("reseals")
