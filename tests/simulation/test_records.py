"""The scenarios (:mod:`.scenarios`) of records: written one by one, in jobs, and read."""

from __future__ import annotations

from collections.abc import Callable

Holds = Callable[[str], None]


def test_acknowledged_records_are_there_once_for_all_who_ask_later(holds: Holds) -> None:
    holds("records")


def test_no_raise_of_a_number_is_lost_or_done_twice(holds: Holds) -> None:
    holds("counters")


def test_no_two_records_share_a_unique_value_and_the_last_one_stands(holds: Holds) -> None:
    holds("unique")


def test_an_upload_goes_on_where_it_had_got_to_and_becomes_a_job_once(holds: Holds) -> None:
    holds("uploads")


def test_a_job_is_there_as_a_whole_or_not_at_all(holds: Holds) -> None:
    holds("jobs")


def test_a_packed_job_is_there_once_and_nothing_of_it_is_left(holds: Holds) -> None:
    holds("packing")


def test_a_copy_made_of_the_change_feed_holds_what_a_search_finds(holds: Holds) -> None:
    holds("feed")


def test_no_promise_is_broken_while_everything_happens_at_once(holds: Holds) -> None:
    holds("mixed")
