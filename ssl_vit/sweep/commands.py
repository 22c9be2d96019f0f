"""A command of the project as what a unit runs; imports little, because a process waits for every command."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from ssl_vit.core import signals

PROGRAM = (sys.executable, "-m", "ssl_vit")


def run_command(words: tuple[str, ...], log: Path) -> int:
    """Runs ``ssl-vit WORDS`` to its end, in a session of its own: signals reach it once, through this process.

    Args:
        words: Behind ``ssl-vit``.
        log: What it says is added to this file.

    Returns:
        Its status.
    """
    processes, told = list[subprocess.Popen[bytes]](), list[int]()

    def tell(number: int, frame: FrameType | None = None) -> None:
        told.append(number)
        for process in processes:
            process.send_signal(number)

    log.parent.mkdir(parents=True, exist_ok=True)
    with signals.handled(tell, (*signals.ENDING, signal.SIGINT)), log.open("ab") as said:
        process = subprocess.Popen(
            [*PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        processes.append(process)
        if told:  # while it was started
            process.send_signal(told[-1])
        return process.wait()
