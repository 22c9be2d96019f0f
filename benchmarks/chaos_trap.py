"""A script of the project with a trap: the process kills itself at a point; benchmarks/chaos.py starts it.

What to do stands in the environment as JSON (``CHAOS``): ``count`` counts all points of a whole run instead of killing,
``point`` and ``n`` name the n-th time of a point, ``ranks`` the processes that it is set in, ``notes`` the file that is
told of every checkpoint that was written or loaded. ``event`` is the n-th call or return of any function, so that a
random point is the same one in every repetition.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ASKED: dict[str, Any] = json.loads(os.environ.get("CHAOS", "{}"))
RANK, OWN = int(os.environ.get("RANK", "0")), os.getpid()
POINTS = (
    "event", "before a step's optimiser", "after a step", "before fsync", "after fsync", "before a rename",
    "after a rename", "before a removal", "within a log line",
)  # fmt: skip
"""All of them."""
seen: dict[str, int] = dict.fromkeys(POINTS, 0)


def note(what: str, step: int) -> None:
    """Tells the benchmark, whatever happens next."""
    if RANK == 0:
        with Path(ASKED["notes"]).open("a") as file:
            file.write(f"{what} {step}\n")


def kill(first: Callable[[], object] = lambda: None) -> None:
    """Ends this process, unless it is one that decodes images and has inherited the trap."""
    if os.getpid() == OWN:
        first()
        os.kill(OWN, signal.SIGKILL)


def passed(point: str, first: Callable[[], object] = lambda: None) -> None:
    """Counts a point, and ends the process there where that was asked for; ``first`` is done before."""
    seen[point] += 1
    if point == ASKED.get("point") and seen[point] == ASKED["n"] and RANK in ASKED["ranks"]:
        kill(first)


def around(owner: Any, name: str, before: str | None, after: str | None) -> None:
    """Sets traps before and after a function."""
    usual = getattr(owner, name)

    def trapped(*args: Any, **options: Any) -> Any:
        if before:
            passed(before)
        result = usual(*args, **options)
        if after:
            passed(after)
        return result

    setattr(owner, name, trapped)


def set_traps() -> None:
    """At every named point."""
    from ssl_vit.runs.directory import RunDir
    from ssl_vit.training import saving
    from ssl_vit.training.stepping import Stepper

    around(Stepper, "_clip", "before a step's optimiser", None)
    around(Stepper, "__call__", None, "after a step")
    around(os, "fsync", "before fsync", "after fsync")
    around(Path, "replace", "before a rename", "after a rename")
    around(Path, "unlink", "before a removal", None)
    log, save, load = RunDir.log, saving.save_checkpoint, saving.load_checkpoint

    def trapped_log(self: RunDir, record: dict[str, Any], file: str = "metrics.jsonl") -> None:
        def half() -> None:
            line = json.dumps(record) + "\n"
            with (self.path / file).open("a", encoding="utf-8") as lines:
                lines.write(line[: len(line) // 2])

        if self.writes:
            passed("within a log line", half)
        log(self, record, file)

    def trapped_save(folder: Path, step: int, *rest: Any) -> None:
        save(folder, step, *rest)
        note("saved", step)

    def trapped_load(folder: Path, *rest: Any) -> Any:
        state = load(folder, *rest)
        note("loaded", 0 if state is None else state["step"])
        return state

    RunDir.log = trapped_log  # type: ignore[method-assign]
    saving.save_checkpoint, saving.load_checkpoint = trapped_save, trapped_load


def count_events() -> None:
    """Counts calls and returns of every function from here on, in the main thread."""
    wanted = ASKED["n"] if ASKED.get("point") == "event" and RANK in ASKED["ranks"] else -1

    def event(frame: Any, kind: str, argument: Any) -> None:
        seen["event"] += 1
        if seen["event"] == wanted:
            kill()

    sys.setprofile(event)


def leave_counts() -> None:
    """What there was to be killed at, for the benchmark to draw from."""
    sys.setprofile(None)
    Path(f"{ASKED['notes']}.counts").write_text(json.dumps(seen))


if __name__ == "__main__":
    set_traps()
    sys.argv = sys.argv[1:]
    if ASKED.get("count") and RANK == 0:
        atexit.register(leave_counts)
    if ASKED.get("count") or ASKED.get("point") == "event":
        count_events()
    runpy.run_path(sys.argv[0], run_name="__main__")
