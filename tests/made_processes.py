"""Processes for tests that need several, or one that may be killed: forked from one that has imported everything.

Importing torch and the rest takes seconds, again in every process and in its launcher. The server below does it once;
what it forks runs a script, and what is registered for Python's end, as if it had been started: with its command line,
environment, working directory and session. Several form a group as torchrun forms it. What a launcher itself does, or
what happens before imports, needs a process that begins cold.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

LONGEST = 900
"""Seconds after which a process is ended."""
GRACE = 30
"""Seconds that processes get to end after one has failed, as torchrun gives them."""
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK")


class Warm:
    """Runs scripts in processes that a server forks; close it."""

    def __init__(self) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self.server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __call__(
        self,
        script: str | Path,
        *words: str,
        cwd: Path,
        processes: int = 1,
        each: Sequence[dict[str, str]] = (),
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        """A script on one or several processes; after one has failed, the others are ended.

        Args:
            script: Path.
            words: Its command line.
            cwd: Where it runs.
            processes: How many; several can find each other.
            each: Instead: of every process, what its environment has and others have not.
            variables: More of the environment.

        Returns:
            What all processes said, and the first status that is not 0.
        """
        environment = {k: v for k, v in os.environ.items() if k not in LAUNCHERS} | variables
        environment["OMP_NUM_THREADS"] = "1"
        store = None
        if processes > 1:
            from torch.distributed import TCPStore

            store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # a port that is free
            environment |= {
                "ACCELERATE_USE_CPU": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port),
                "WORLD_SIZE": str(processes),
                "LOCAL_WORLD_SIZE": str(processes), "TORCHELASTIC_USE_AGENT_STORE": "True",
                "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_RUN_ID": "none",
            }  # fmt: skip
        ranks = [{"RANK": str(i), "LOCAL_RANK": str(i)} for i in range(processes)] if processes > 1 else [{}]
        ranks = list(each) or ranks
        with TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            order = {
                "argv": [str(script), *words], "cwd": str(cwd), "out": str(out), "err": str(err),
                "environments": [environment | rank for rank in ranks],
            }  # fmt: skip
            assert self.server.stdin and self.server.stdout
            self.server.stdin.write(json.dumps(order) + "\n")
            self.server.stdin.flush()
            answer = self.server.stdout.readline()
            assert answer, "the server of processes has ended"
            return subprocess.CompletedProcess(order["argv"], int(answer), out.read_text(), err.read_text())

    def close(self) -> None:
        """Ends the server."""
        assert self.server.stdin and self.server.stdout
        self.server.stdin.close()
        self.server.wait()
        self.server.stdout.close()


def _import_everything() -> None:
    import ssl_vit

    for found in pkgutil.walk_packages(ssl_vit.__path__, "ssl_vit."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    gc.collect()
    gc.freeze()  # nothing of this is looked at again by those who share it


def _forked(order: dict[str, Any]) -> int | None:
    """The status of all processes together; None in those that are forked."""
    left, status, end = set[int](), 0, 0.0
    for environment in order["environments"]:
        pid = os.fork()
        if not pid:
            _become(order, environment)
            return None
        left.add(pid)
    while left:
        pid, told = os.waitpid(-1, os.WNOHANG if end else 0)
        if not pid:
            if time.monotonic() > end:
                for other in left:
                    os.kill(other, signal.SIGKILL)
                end = float("inf")
            time.sleep(0.05)
            continue
        left.discard(pid)
        if told and not status:
            status, end = os.waitstatus_to_exitcode(told), time.monotonic() + GRACE
            for other in left:
                os.kill(other, signal.SIGTERM)
    return status


def _become(order: dict[str, Any], environment: dict[str, str]) -> None:
    os.setsid()
    signal.alarm(LONGEST)
    for number, (name, flags) in enumerate(
        [(os.devnull, os.O_RDONLY)] + [(order[k], os.O_WRONLY | os.O_CREAT | os.O_APPEND) for k in ("out", "err")]
    ):
        os.dup2(os.open(name, flags), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(order["cwd"])
    sys.argv = order["argv"]
    sys.path[:0] = [str(Path(sys.argv[0]).parent), *environment.get("PYTHONPATH", "").split(os.pathsep)]


def _serve() -> bool:
    """Forks for every line; True in what was forked, False at the end."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # answers only
    for line in sys.stdin:
        status = _forked(json.loads(line))
        if status is None:
            return True
        answers.write(f"{status}\n")
        answers.flush()
    return False


def _run() -> int:
    """The status of the script, which sees what Python does at its end."""
    status = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as stopped:
        status = stopped.code or 0
        if not isinstance(status, int):
            sys.stderr.write(f"{status}\n")
            status = 1
    except BaseException as error:
        sys.last_value, status = error, 1
        sys.excepthook(type(error), error, error.__traceback__)
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


if __name__ == "__main__":
    _import_everything()
    os._exit(_run() if _serve() else 0)  # to take apart all that was imported would take seconds
