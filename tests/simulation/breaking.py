"""Planted faults: each is a change of a line or two of the service, made in memory.

``python -m tests.simulation.breaking`` runs each under new seeds of the scenario that should find
it, and says after how many it did. README.md has the list. A simulation that finds nothing is worth
what it would have found.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import subprocess
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.place import place

#: Seeds within which a fault has to be found; the first that finds it is the last that runs.
MOST_SEEDS = 200
#: Seeds that do not find a fault for which a second check makes up.
BEHIND_SEEDS = 10
#: The first of them; the fixed seeds of CI are others.
FIRST_SEED = 1000
_PACKAGE = "encrypted_records"


@dataclass(frozen=True)
class Planted:
    """
    Attributes:
        module: below ``encrypted_records``.
        text: what stands there once, and what stands there instead.
        scenario: which should find it.
        behind: where a second check makes up for it, or a test finds it that is no scenario: which
            one. Then no seed has to find it.
    """

    name: str
    module: str
    text: tuple[str, str]
    scenario: str
    behind: str = ""


_NO_LOCK = 'async with __import__("contextlib").nullcontext():'
PLANTED = (
    Planted(
        "if_match_is_ignored",
        "proxy.write.update",
        (
            "if versions is not None and record.record.version not in versions:",
            "if versions is not None and record.record.version < 0:",
        ),
        "counters",
    ),
    Planted(
        "a_change_without_an_answer_is_acknowledged",
        "proxy.write.update",
        (
            "        await self._committer.store(caller, [(state, sealed.upload)],"
            " built=[sealed.built])\n        return record\n",
            '        with __import__("contextlib").suppress(Exception):\n'
            "            await self._committer.store(caller, [(state, sealed.upload)],"
            " built=[sealed.built])\n        return record\n",
        ),
        "records",
    ),
    Planted(
        "a_delete_is_acknowledged_before_it_is_sent",
        "proxy.write.update",
        (
            "            await self._committer.store(caller, drafts, because=because)\n",
            "            import asyncio\n"
            "            state_of = asyncio.ensure_future(\n"
            "                self._committer.store(caller, drafts, because=because))\n"
            "            self._kept = state_of\n",
        ),
        "records",
    ),
    Planted(
        "a_repetition_is_not_recognised",
        "proxy.write.ingest",
        ("if ingest.item.request.is_stored(states):", "if False:"),
        "records",
    ),
    Planted(
        "an_idempotency_key_is_lost",
        "proxy.write.ingest",
        ("        if header is None:\n            return None\n", "        return None\n"),
        "records",
    ),
    Planted(
        "a_search_is_not_confirmed",
        "proxy.search.context",
        (
            "confirmed = state is None or confirmed_state is not None\n",
            "confirmed = True\n",
        ),
        "records",
    ),
    Planted(
        "a_reader_does_not_follow_the_log",
        "proxy.schemas.states",
        (
            "        async with state.lock:\n            await self.catch_up(caller, state)\n"
            "        if epoch == self._epoch:\n",
            "        if epoch == self._epoch:\n",
        ),
        "counters",
    ),
    Planted(
        "dead_rows_are_found",
        "index.query.matching",
        (
            "live = self.condition.match(segment).without(dead)",
            "live = self.condition.match(segment)",
        ),
        "records",
    ),
    Planted(
        "a_merge_drops_a_row",
        "index.segments.merge",
        (
            "    dead = [snapshot.dead_rows(source.segment) for source in inputs]\n",
            "    dead = [snapshot.dead_rows(source.segment) for source in inputs]\n"
            "    dead[0] = dead[0] | type(dead[0])([0])\n",
        ),
        "records",
    ),
    Planted(
        "a_compaction_revives_dead_rows",
        "proxy.write.compactor",
        ("killed=[records.RowRef(group.uid, at) for at in dead - holes]", "killed=[]"),
        "records",
        behind="the API takes a group only with the dead rows of those before (group_not_live)",
    ),
    Planted(
        "ids_of_records_are_drawn_once",
        "model.ids",
        (
            "    joined = bytearray(runtime.random_bytes(ID_BYTES * count))\n",
            "    joined = bytearray(bytes(ID_BYTES * count))\n",
        ),
        "jobs",
    ),
    Planted(
        "a_commit_is_not_one_transaction",
        "server.commits.commits",
        (
            "    with transaction.atomic():\n        locked: dict",
            "    if True:\n        locked: dict",
        ),
        "records",
    ),
    Planted(
        "a_commit_that_is_in_the_log_is_applied_again",
        "server.commits.commits",
        ("    if logged is None:\n        return None\n", "    return None\n"),
        "records",
    ),
    Planted(
        "a_row_is_ended_twice",
        "server.commits.commits",
        ("if len(ended) + without != len(keys) or store.dead_among(keys):", "if False:"),
        "counters",
    ),
    Planted(
        "a_chunk_is_noted_before_it_is_staged",
        "proxy.jobs.runner",
        (
            "                for part in sealed.parts:\n"
            "                    await self._uses.api.stage(part.schema, part.body, caller.auth,"
            " attempt=attempt)\n"
            "                await runtime.in_thread(self._uses.store.done, job.id, chunk,"
            " sealed.parts)\n",
            "                await runtime.in_thread(self._uses.store.done, job.id, chunk,"
            " sealed.parts)\n"
            "                for part in sealed.parts:\n"
            "                    await self._uses.api.stage(part.schema, part.body, caller.auth,"
            " attempt=attempt)\n",
        ),
        "jobs",
        behind="a job of which the API has not all seals it again (staging_gone)",
    ),
    Planted(
        "a_part_has_no_attempt",
        "proxy.jobs.store",
        ("        return int(attempt)\n", "        return 0\n"),
        "jobs",
        behind="tests/proxy/test_job_races.py finds it",
    ),
    Planted(
        "a_job_does_not_look_whether_it_is_published",
        "proxy.jobs.publisher",
        ("            if published or not states:\n", "            if not states:\n"),
        "jobs",
        behind="before a job is sealed again it is withdrawn, which finds it in the log",
    ),
    Planted(
        "who_was_put_out_keeps_access",
        "server.organizations.roster_members",
        (
            "    Shared.objects.filter(**of_member).delete()\n"
            "    StoredGrant.objects.filter(**of_member).delete()\n"
            "    change.take_access(named)\n",
            "    pass\n",
        ),
        "removal",
    ),
    Planted(
        "segments_of_before_a_reseal_are_taken",
        "server.commits.commits",
        ("judge_order(body, log, ", "judge_order(body, log._replace(resealed_at=0), "),
        "reseals",
    ),
    Planted(
        "records_that_a_writer_has_not_seen_do_not_count",
        "server.commits.commits",
        ("judge_order(body, log, ", "judge_order(body, log._replace(added_at=0), "),
        "unique",
    ),
    Planted(
        "records_go_a_day_early",
        "model.definition",
        ("date() - timedelta(days=self.days)", "date() - timedelta(days=self.days - 1)"),
        "retention",
    ),
    Planted(
        "retention_waits_until_it_is_asked_for",
        "proxy.retention",
        ("        self._background.start(RETENTION, run)\n", "        del run\n"),
        "retention",
    ),
    Planted(
        "the_wrong_rows_are_let_go",
        "proxy.write.update",
        ("batch, snapshot = numbers[:MAX_DELETED]", "batch, snapshot = [at + 1 for at in numbers]"),
        "retention",
    ),
    Planted(
        "bytes_are_acknowledged_before_they_are_written",
        "proxy.spool",
        (
            "        self._flush()\n        self._sync()\n        self._await_sync()\n"
            "        self._ended(self._written)\n",
            "        self._ended(self._written)\n",
        ),
        "uploads",
    ),
    Planted(
        "parts_are_put_together_in_another_order",
        "proxy.spool",
        ("_PART.pack(*part) for part in parts)", "_PART.pack(*part) for part in reversed(parts))"),
        "uploads",
    ),
    Planted(
        "what_was_packed_is_packed_no_more_behind_a_kill",
        "proxy.jobs.packing",
        ("- self._done | stale.keys()))", "- self._done - stale.keys()))"),
        "packing",
    ),
    Planted(
        "what_was_erased_stays_in_the_files",
        "server.db.databases",
        ("PRAGMA secure_delete=ON;", "PRAGMA secure_delete=OFF;"),
        "erasure",
    ),
    Planted(
        "a_writer_changes_without_the_lock",
        "proxy.write.update",
        (
            "                async with state.lock:\n"
            "                    record = await self._store_change",
            f"                {_NO_LOCK}\n                    record = await self._store_change",
        ),
        "records",
    ),
    Planted(
        "what_is_not_known_is_not_asked_for",
        "proxy.write.committer",
        (
            "            if state.uncertain or _is_late(state):\n",
            "            if _is_late(state):\n",
        ),
        "records",
        behind="the API takes no commit that does not follow the writer's last (writer_conflict)",
    ),
    Planted(
        "a_revoked_token_is_answered",
        "proxy.auth",
        (
            "        if token is not None:\n            # Not cached",
            "        if token is not None and refresh:\n            # Not cached",
        ),
        "tokens",
    ),
    Planted(
        "a_job_outlives_its_token",
        "server.accounts.authentication",
        ("            or (grant.is_limited and grant.api_token is None)\n", ""),
        "tokens",
    ),
    Planted(
        "a_limited_token_reaches_all",
        "server.permissions",
        (
            "return token.datasets.all() if token is not None and token.limited else None",
            "return None",
        ),
        "tokens",
    ),
    Planted(
        "a_token_that_reads_stores",
        "proxy.api.endpoint",
        ("if token is not None and not token.writes:", "if False:"),
        "tokens",
        behind="the API refuses it what it may not (token_limited)",
    ),
    Planted(
        "a_rollback_is_not_noticed",
        "proxy.schemas.states",
        ("if seen is not None and not ledger.knows(seen):", "if False:"),
        "rollback",
    ),
    Planted(
        "a_rollback_is_not_remembered_behind_a_kill",
        "proxy.schemas.store",
        (
            "            database.execute(_BEGIN, (user, schema))\n"
            "            database.execute(_REMEMBER, (user, schema, head.version, head.digest))\n",
            "",
        ),
        "rollback",
    ),
    Planted(
        "keys_stay_as_they_were_behind_a_removal",
        "proxy.sharing.settling",
        (
            "                if due.losses and await self.rotate(\n",
            "                if False and await self.rotate(\n",
        ),
        "people",
    ),
    Planted(
        "who_comes_back_gets_no_keys",
        "proxy.sharing.settling",
        (
            "            for dataset in {share.dataset for share in standing.shares}:\n",
            "            for dataset in set():\n",
        ),
        "people",
    ),
    Planted(
        "an_invitation_is_used_twice",
        "index.roster.access",
        ("    if status is not InvitationStatus.WAITING:\n", "    if False:\n"),
        "people",
        behind="the API has no invitation any more that was used (not_found)",
    ),
    Planted(
        "what_is_forgotten_is_not_erased",
        "server.db.databases",
        ("PRAGMA secure_delete=ON;", "PRAGMA secure_delete=OFF;"),
        "people",
    ),
    Planted(
        "an_export_holds_nothing",
        "proxy.search.export",
        ("            await hold.begin()\n            batches = holding(hold, batches)\n", ""),
        "erasure",
        behind="so few rows are fetched at once; tests/proxy/test_exports_and_erasure.py finds it",
    ),
    Planted(
        "a_change_of_a_dead_row_is_sent",
        "proxy.write.update",
        (
            "        if not snapshot.is_live(present.row.group, present.row.ordinal):\n",
            "        if False:\n",
        ),
        "counters",
    ),
    Planted(
        "a_deletion_is_not_in_the_feed",
        "proxy.feed",
        ("if name[0] not in replaced.get(version, ()):", "if False:"),
        "feed",
    ),
    Planted(
        "a_change_is_a_deletion_in_the_feed",
        "proxy.feed",
        ("if name[0] not in replaced.get(version, ()):", "if True:"),
        "feed",
    ),
    Planted(
        "the_feed_skips_a_row_between_pages",
        "proxy.feed",
        ("            return number\n", "            return number + 1\n"),
        "feed",
    ),
    Planted(
        "who_was_put_out_follows_the_feed",
        "proxy.feed",
        ("is_recent = runtime.monotonic() < requested_at + ASK_SECONDS", "is_recent = True"),
        "feed",
    ),
)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the one module that is changed."""

    def __init__(self, planted: Planted) -> None:
        self._planted = planted
        self._name = f"{_PACKAGE}.{planted.module}"

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        assert found is not None and found.origin is not None
        loader = _Loader(fullname, found.origin, self._planted)
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, planted: Planted) -> None:
        super().__init__(fullname, path)
        self._planted = planted

    def get_code(self, fullname: str) -> types.CodeType:
        return self.source_to_code(changed(self._planted, Path(self.path)).encode(), self.path)


def changed(planted: Planted, path: Path) -> str:
    """The source of the module with the fault in it.

    Raises:
        ValueError: what it replaces does not stand there exactly once.
    """
    source = path.read_text()
    old, new = planted.text
    if source.count(old) != 1:
        raise ValueError(f"{planted.name}: {path} has {source.count(old)} times what it replaces")
    return source.replace(old, new)


def path_of(planted: Planted) -> Path:
    """The file of the module that is changed."""
    root = Path(__file__).parents[2] / "src" / _PACKAGE
    return root / f"{planted.module.replace('.', '/')}.py"


def plant(name: str) -> None:
    """Have this process import the service with a fault in it.

    Raises:
        KeyError: there is no such fault.
    """
    planted = {one.name: one for one in PLANTED}[name]
    assert f"{_PACKAGE}.{planted.module}" not in sys.modules, "it is imported already"
    sys.meta_path.insert(0, _Finder(planted))


def find(planted: Planted, template: Path, seeds: int) -> tuple[int, str] | None:
    """How many seeds it took until the fault was found, and what was said of it; None where it was
    not.

    Raises:
        RuntimeError: nothing could be run.
    """
    command = [
        *(sys.executable, "-m", "tests.simulation", planted.scenario),
        *("--plant", planted.name, "--first", "--template", str(template)),
        *("--seeds", f"{FIRST_SEED}-{FIRST_SEED + seeds - 1}"),
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    runs = said.stdout.count(" trace ")
    if said.returncode == 0:
        return None
    if not runs:
        raise RuntimeError(said.stdout + said.stderr)
    lines = [line for line in said.stdout.splitlines() if line.strip()]
    faults = [line for line in lines if "Fault: " in line or "Error: " in line]
    return runs, (faults or lines)[-1].strip(" |")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.breaking")
    parser.add_argument("names", nargs="*", metavar="FAULT", help="all, if none is named")
    parser.add_argument("--seeds", type=int, default=MOST_SEEDS, help="at most (default: 200)")
    asked = parser.parse_args()
    every = [one for one in PLANTED if not asked.names or one.name in asked.names]
    missed = 0
    with place() as folder:
        template = folder / "template"
        make = [sys.executable, "-m", "tests.simulation", "--make-template", str(template)]
        subprocess.run(make, check=True)
        for one in every:
            seeds = min(asked.seeds, BEHIND_SEEDS) if one.behind else asked.seeds
            found = find(one, template, seeds)
            missed += found is None and not one.behind
            told = f"not in {seeds} seeds" if found is None else f"seed {found[0]}: {found[1]}"
            note = f" ({one.behind})" if one.behind else ""
            sys.stdout.write(f"{one.name} [{one.scenario}]: {told[:200]}{note}\n")
            sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
