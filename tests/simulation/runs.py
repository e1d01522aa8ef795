"""One run of a scenario with a seed, and the process that it is made in."""

from __future__ import annotations

import asyncio
import collections
import gc
import json
import logging
import os
import resource
import shutil
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.simulation import api, workers
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.scene import Scene
from tests.simulation.world import World

#: How a line ends that says of a file what a scenario has made of its disk.
_FULL = "fails: SQLITE_FULL"
#: Lines of the log that are shown of a run that failed.
_LINES = 60
#: Processor time of a seed: a step that takes so much never ends. A run takes two.
_MOST_SECONDS = 200


@dataclass(frozen=True)
class Outcome:
    """
    Attributes:
        trace: the same for two runs of a seed.
        seconds: of real time.
        error: why it failed; None where it did not.
        counts: what happened how often.
    """

    name: str
    seed: int | str
    trace: int
    steps: int
    seconds: float
    error: str | None
    counts: dict[str, int]

    def __str__(self) -> str:
        head = (
            f"{self.name} {self.seed}: trace {self.trace:08x}, {self.steps} steps,"
            f" {self.seconds:.2f} s"
        )
        if self.error is None:
            return head
        again = f"python -m tests.simulation {self.name} --seeds {self.seed}"
        return f"{head}\n{self.error}\nagain: {again}"


def make_template(folder: Path) -> None:
    """Fill a folder with the database that all worlds begin with, in a process of its own: whether
    it was made or read is not to be seen in a run.

    Raises:
        RuntimeError: it cannot be made; stderr has why.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            api.prepare(folder)
            logging.disable()
            api.make_template(folder)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError("the template of the databases cannot be made")


class Runner:
    """A process that has been warmed up, and forks."""

    def __init__(self, folder: Path, template: Path | None = None) -> None:
        """
        Args:
            template: the folder that :func:`make_template` has filled; without one it is made.
        """
        self._folder = folder
        self._lines: collections.deque[str] = collections.deque(maxlen=_LINES)
        self._bugs: list[str] = []
        self._kept: list[object] = []
        if template is None:
            template = folder / "made"
            make_template(template)
        api.prepare(folder)
        self._log()
        self.template = api.read_template(template)
        self._warm: set[str] = set()

    def _log(self) -> None:
        lines, bugs = self._lines, self._bugs

        class Keeping(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                text = f"{time.time():.3f} {record.levelname} {record.name}: {record.getMessage()}"
                if record.exc_info:
                    text += "\n" + "".join(traceback.format_exception(*record.exc_info))
                    if record.levelno >= logging.ERROR and not text.endswith(_FULL):
                        bugs.append(text)
                lines.append(text)

        logging.root.handlers[:] = [Keeping()]
        logging.root.setLevel(logging.WARNING)
        logging.getLogger("django").setLevel(logging.WARNING)

    def warm(self, name: str) -> None:
        """Run a scenario once with other accounts, for what stays in memory of any run."""
        if name not in self._warm:
            self._warm.add(name)
            self._run(name, "warm", api.WARM_PEOPLE, None)

    def run(self, name: str, seed: int, *, trail: Path | None = None, log: bool = False) -> Outcome:
        """Run a scenario in a fork."""
        self.warm(name)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(reading)
                resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS))
                if log:
                    logging.root.setLevel(logging.INFO)
                outcome = self._run(name, seed, api.PEOPLE, trail)
                if log:
                    sys.stdout.write("\n".join(self._lines) + "\n")
                    sys.stdout.flush()
                with os.fdopen(writing, "w") as stream:
                    json.dump(asdict(outcome), stream)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(writing)
        with os.fdopen(reading) as stream:
            text = stream.read()
        _, status = os.waitpid(child, 0)
        if not text:
            ended = os.waitstatus_to_exitcode(status)
            return Outcome(name, seed, 0, 0, 0.0, f"the process ended with {ended}", {})
        return Outcome(**json.loads(text))

    def _run(self, name: str, seed: int | str, people: Any, trail: Path | None) -> Outcome:
        folder = self._folder / f"{name}-{seed}"
        world = World(f"{name} {seed}", folder)
        if trail is not None:
            world.loop.trail = []
        began = time.perf_counter()
        gc.disable()
        self._lines.clear()
        self._bugs.clear()
        error = None
        counts: dict[str, int] = {}
        # Kept: what is collected runs its finally, and a killed process does not.
        self._kept.append(world)
        with world.installed(), workers.installed():
            scene = Scene(world, self.template, people)
            self._kept.append(scene)
            asyncio.set_event_loop(world.loop)
            try:
                world.loop.run_until_complete(SCENARIOS[name](scene))
            except Exception as failure:
                error = self._say(failure)
            if error is None and self._bugs:
                error = "what was logged is a bug:\n" + "\n".join(self._bugs)
            counts = {**scene.counts, **{f"fate {k}": n for k, n in scene.network.counts.items()}}
            counts["kills"] = sum(proxy.kills for proxy in scene.proxies)
            scene.api.close()
        if trail is not None and world.loop.trail is not None:
            trail.write_text("\n".join(world.loop.trail))
        shutil.rmtree(folder, ignore_errors=True)
        seconds = time.perf_counter() - began
        return Outcome(name, seed, world.loop.trace, world.loop.steps, seconds, error, counts)

    def _say(self, failure: BaseException) -> str:
        said = "".join(traceback.format_exception(failure))
        return "\n".join([*self._lines, said])
