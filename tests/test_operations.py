"""What docs/operations.md tells an operator to type is what a test does, or it says that none does.

A table, since most commands name machines that a test has not: each block of commands, by its first
line, and the tests that do the same by the same commands, settings or statements.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "operations.md").read_text()
#: What stands in the document where no test of ours runs a block.
NOT_RUN = "has not been run by us"
_S3 = "tests/server/test_bulk_s3.py"
_SEVERAL = "tests/server/test_several_apis.py"
_DUMPED = (
    "tests/cli/test_dumped.py::test_a_service_on_postgresql_is_backed_up_while_it_runs_and_put_back"
)
_MOVING = (
    "tests/server/test_moving.py"
    "::test_rows_and_pages_move_to_objects_while_they_are_read_and_every_flaw_is_named"
)
_KILLED = f"{_SEVERAL}::test_nothing_is_lost_or_doubled_when_the_primary_is_killed_under_writers"
_GOES_ON = f"{_SEVERAL}::test_sign_ins_lockouts_tokens_jobs_and_uploads_go_on_when_an_api_is_killed"
#: By how a block begins; none of those that the document says are not run.
RUN_BY: dict[str, tuple[str, ...]] = {
    "(umask 077; ers token create nightly": (
        "tests/cli/test_tokens.py::test_a_token_and_a_device_are_all_that_another_machine_needs",
    ),
    "(umask 077; ers service create nightly": (
        "tests/cli/test_share.py::test_a_service_imports_by_one_variable_and_no_login",
    ),
    # The statements are taken from the document.
    'psql "$ERS_DATABASE_URL" -c \'VACUUM FULL': (
        "tests/server/test_erasing.py"
        "::test_a_deleted_rows_bytes_and_id_are_in_no_file_once_the_api_says_so",
    ),
    "createdb ers": (
        "tests/faults/test_processes.py"
        "::test_each_request_and_each_job_is_whole_whichever_side_is_killed",
    ),
    "ers api --database-url postgresql://... --bulk-url file:///srv/ers-objects": (
        f"{_S3}::test_parts_lie_in_the_bucket_in_three_copies_and_are_read_from_there",
        "tests/server/test_bulk.py::test_rows_in_objects_are_read_by_place_and_by_id",
    ),
    "export AWS_ACCESS_KEY_ID=...": (
        f"{_S3}::test_a_move_from_files_to_s3_that_is_killed_at_any_step_goes_on",
        _MOVING,
    ),
    "ers verify --stored": (_MOVING,),
    "ers doctor --stored": (
        "tests/server/test_replicas.py"
        "::test_a_replica_that_hangs_is_given_up_and_the_primary_answers",
    ),
    "runuser -u ers-api -- ers doctor": (
        "tests/cli/test_data_folder.py::test_a_folder_of_another_user_is_refused_and_untouched",
    ),
    "ers api --workers 4": (
        "tests/server/test_workers.py"
        "::test_any_process_of_an_api_may_be_killed_and_nothing_is_lost_or_doubled",
    ),
    # Several machines.
    "export ERS_DATABASE_URL='postgresql://ers@db1.example,db2": (_GOES_ON,),
    # HAProxy's configuration is taken from the document.
    "defaults": (_GOES_ON,),
    "pg_basebackup -d": (_KILLED,),
    "CREATE EXTENSION citus;": (),
    "ers up --api-metrics-port 9801": (
        "tests/e2e/test_metrics.py"
        "::test_requests_are_counted_by_the_template_of_their_path_and_their_status",
    ),
    "ers backup /backups/monday --data-dir": (
        "tests/cli/test_backup.py"
        "::test_a_backup_of_a_running_service_holds_all_that_was_acknowledged",
    ),
    # These are taken from the document.
    "ers backup /backups/monday/proxy": (_DUMPED,),
    "pg_dump --format=custom": (_DUMPED,),
    "pg_restore --no-owner": (_DUMPED,),
    "ers restore /backups/monday/proxy": (_DUMPED,),
    "ers proxy accept-rollback": (
        "tests/cli/test_rollback.py"
        "::test_roster_and_logs_are_taken_back_together_and_what_is_lost_is_listed",
    ),
    "ers storage reconcile": (
        "tests/cli/test_reconcile.py"
        "::test_what_was_erased_stays_so_with_the_database_and_with_the_objects_of_before",
    ),
    "ers schema status patient": (
        "tests/cli/test_broken_logs.py"
        "::test_an_older_log_is_shown_with_what_is_lost_and_accepted_when_that_is_meant",
    ),
}


def blocks() -> list[str]:
    return re.findall(r"^```(?:sh|bash|sql|haproxy)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def entry_of(block: str) -> str:
    [entry] = [one for one in RUN_BY if block.startswith(one)]
    return entry


def test_each_block_of_commands_has_its_tests_and_each_entry_its_block() -> None:
    assert {entry_of(block) for block in blocks()} == set(RUN_BY)


@pytest.mark.parametrize("named", sorted({test for tests in RUN_BY.values() for test in tests}))
def test_the_tests_that_run_commands_are_there(named: str) -> None:
    path, name = named.split("::")
    assert f"\ndef {name}(" in (ROOT / path).read_text()


def test_what_no_test_runs_says_so() -> None:
    parts = re.split(r"^#{2,3} ", TEXT, flags=re.MULTILINE)
    for entry, tests in RUN_BY.items():
        own = [part for part in parts if f"\n{entry}" in part]
        assert bool(tests) or [NOT_RUN in " ".join(part.split()) for part in own] == [True]
