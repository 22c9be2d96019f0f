"""Runs the children of a sweep, some at a time, until none is left that can go on; what is finished is not repeated."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ssl_vit.core.text import duration
from ssl_vit.engines.driver import Driver
from ssl_vit.engines.unit import Engine, Unit
from ssl_vit.runs.listing import Run, read
from ssl_vit.sweep.commands import run_command
from ssl_vit.sweep.plan import Child, Plan


def next_stage(child: Child) -> tuple[str, ...]:
    """What is to be run for a child now: its training, then what judges it; empty where all is there.

    Args:
        child: Which.
    """
    run = read(child.folder) if child.folder.is_dir() else None
    if not isinstance(run, Run) or run.state != "done" or not _as_long(run, child):
        return child.words
    if child.result is None:
        return ()
    try:  # what was judged before the run was made longer is judged again
        fresh = child.result.stat().st_mtime >= (child.folder / "backbone" / "model.safetensors").stat().st_mtime
    except FileNotFoundError:
        fresh = False
    return () if fresh else child.judged_by


def _as_long(run: Run, child: Child) -> bool:
    """Whether a run has the length that is asked for."""
    kept, asked = run.config.get("fit", {}), child.config.fit
    return all(given is None or kept.get(name) == given
               for name, given in (("epochs", asked.epochs), ("min_steps", asked.min_steps)))  # fmt: skip


class Course(Driver[Child]):
    """What has become of every child."""

    def __init__(self, plan: Plan, engine: Engine, say: Callable[[str], object]) -> None:
        """Nothing is started yet.

        Args:
            plan: The runs.
            engine: Where they run.
            say: Is told what happens, a line at a time.
        """
        super().__init__(engine, say)
        self.plan = plan
        self._began: dict[Child, float] = {}
        self._done = 0

    def run(self) -> None:
        """Runs all children; one that fails does not end the others.

        Raises:
            SystemExit: After a signal, once every child that runs has saved and ended.
        """
        left = [child for child in self.plan.children if next_stage(child)]
        self._done = len(self.plan.children) - len(left)
        if self._done:
            self.say(f"{self._done} of {len(self.plan.children)} runs are finished already")
        self.drive(left)

    def unit(self, work: Child) -> Unit | None:
        """A command of the project."""
        words, log = next_stage(work), self.plan.asked.out / "logs" / f"{work.folder.name}.log"
        return Unit(f"{log.stem}-{words[0]}", partial(run_command, words, log.resolve()), log) if words else None

    def folder(self, work: Child) -> Path:
        """The run's directory."""
        return work.folder

    def called(self, work: Child) -> str:
        """Setting and seed."""
        return work.name

    def saved(self, work: Child) -> int:
        """The last step that is saved."""
        run = read(work.folder)
        return run.saved if isinstance(run, Run) else -1

    def begins(self, work: Child, unit: Unit) -> None:
        """Says what is run."""
        stage = next_stage(work)
        what = "training" if stage == work.words else stage[0]
        self.say(f"[{self._done}/{len(self.plan.children)}] {work.name}: {what} (log: {unit.log})")
        self._began.setdefault(work, time.monotonic())

    def finished(self, work: Child) -> None:
        """Says how long it took."""
        self._done += 1
        began = self._began.get(work)
        took = "" if began is None else f" after {duration(time.monotonic() - began)}"
        self.say(f"[{self._done}/{len(self.plan.children)}] {work.name}: finished{took}")
