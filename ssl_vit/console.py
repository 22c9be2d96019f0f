"""The command ``ssl-vit``: every script by its name, on as many processes as there are GPUs.

Words are read, and mistakes in them told, before torch is imported and before any process is started.
"""

from __future__ import annotations

import ast
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import NoReturn

import psutil

from ssl_vit import __version__
from ssl_vit.configs import parse
from ssl_vit.core import signals, slurm, started
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.script import all_presets, begun, mistakes_told

_ALONE = (
    "atlas", "compare", "doctor", "export", "figures", "questions", "report", "runs", "slurm", "sweep", "verify",
)  # fmt: skip
"""Commands that work in one process."""
_OPEN = "SSL_VIT_THREADS_OPEN"
"""Tells the processes of a job that nobody chose a number of threads."""


@signals.unread()
def main(words: Sequence[str] | None = None) -> None:
    """Runs a command: the given words, or those of the command line."""
    words, asked = _without_processes(sys.argv[1:] if words is None else words)
    if not words or words[0] in ("-h", "--help"):
        print(overview())
        return
    if words[0] == "--version":
        print(__version__)
        return
    name, words = words[0].replace("_", "-"), words[1:]
    script = started.scripts().get(name)
    if script is None:
        _refuse(_unknown(name))
    if asked is not None and (name in _ALONE or _launched()):
        why = f"ssl-vit {name} works in one process" if name in _ALONE else "a launcher has started this one already"
        _refuse(f"--processes {asked}: {why}; leave it out")
    sys.argv[1:] = [name, *words]
    with mistakes_told():
        here = asked is not None and slurm.in_batch_script()
        task = None if here else slurm.adopt()
        if task is not None and (name in _ALONE or asked is not None):
            why = "--processes asks for more of them" if asked is not None else f"ssl-vit {name} works in one"
            raise UserError(f"srun has started {task.tasks} processes, and {why}; write srun --ntasks=1")
    module = started.module_of(script)
    if hasattr(module, "command"):
        module.command(words)
        return
    config = parse(started.options_of(module), module.__doc__ or "", words, listing=all_presets)
    with mistakes_told():
        if begun(config, words):
            return
        if hasattr(module, "check"):
            module.check(config)
        open_threads = _choose_threads()
        processes = 1 if name in _ALONE or _launched() else _processes(asked)
        if processes > 1:
            _launch(processes, [name, *words], open_threads)
        else:
            started.threads_open = open_threads
            module.main(config)


def overview() -> str:
    """Every command with the first sentence of its script."""
    names = started.scripts()
    width = max(map(len, names))
    lines = ["usage: ssl-vit COMMAND [--processes N] [OPTIONS]; ssl-vit COMMAND --help lists the options"]
    for room, title in zip(started.FOLDERS, ("What trains:", "What judges, applies and shows:"), strict=True):
        lines += ["", title]
        for name, script in names.items():
            if script.startswith(room):
                text = ast.get_docstring(ast.parse((started.ROOT / script).read_text(encoding="utf-8"))) or ""
                lines.append(f"  {name:<{width}}  {text.splitlines()[0]}")
    lines += ["", "--processes N: instead of one process per GPU, or one where there is none."]
    return "\n".join(lines)


def _unknown(name: str) -> str:
    names = started.scripts()
    what = f"there is no command {name}{did_you_mean(name, names)}"
    if name.startswith("-"):
        what = f"{name} stands where the command should; write ssl-vit COMMAND {name} ..."
    return f"{what} (commands: {', '.join(names)})"


def _refuse(message: str) -> NoReturn:
    sys.stderr.write(f"error: {message}\n")
    sys.exit(2)


def _without_processes(words: Sequence[str]) -> tuple[list[str], int | None]:
    """The other words, and what ``--processes`` says."""
    kept: list[str] = []
    given: str | None = None
    rest = iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option == "--processes":
            given = value if equals else next(rest, "")
        else:
            kept.append(word)
    if given is not None and not (given.isascii() and given.isdigit() and int(given)):
        _refuse(f"--processes needs a whole number of at least 1, not {given or 'nothing'}")
    return kept, None if given is None else int(given)


def _launched() -> bool:
    """Whether a launcher of several processes, or of any, has started this one."""
    return "WORLD_SIZE" in os.environ or "ACCELERATE_MIXED_PRECISION" in os.environ


def _on_cpu() -> bool:
    return os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes", "on", "y", "t")


def _gpus() -> int:
    import torch

    return torch.accelerator.device_count() if torch.accelerator.is_available() else 0  # torch 2.7 asks for a driver


def _processes(asked: int | None) -> int:
    """How many processes compute; UserError for more than there are GPUs, where there are any."""
    if asked == 1:
        return 1
    gpus = 0 if _on_cpu() else _gpus()
    if asked is not None and 0 < gpus < asked:
        raise UserError(
            f"--processes {asked}: this machine has {gpus} GPU(s), and each computes for one process; give at most "
            f"{gpus}, or set ACCELERATE_USE_CPU=1 to leave GPUs aside"
        )
    return asked or max(1, gpus)


def _choose_threads() -> bool:
    """One thread, as Accelerate's launcher has it; whether the size of the images may decide otherwise."""
    chosen = "OMP_NUM_THREADS" in os.environ or _launched()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch reads this once
    return bool(os.environ.pop(_OPEN, "")) or not chosen


def _launch(processes: int, words: list[str], open_threads: bool) -> None:
    """The same command in several processes; what they print says what is wrong where they fail."""
    import logging

    from accelerate.commands.launch import launch_command, launch_command_parser
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    from ssl_vit.training.joining import refuse_lost_gpus

    if not _gpus():
        refuse_lost_gpus()
        os.environ["ACCELERATE_USE_CPU"] = "1"  # Accelerate looks for GPUs otherwise, and starts jobs of one process
    if open_threads:
        os.environ[_OPEN] = "1"
    options = {
        "num_processes": processes, "num_machines": 1, "machine_rank": 0, "gpu_ids": "all", "main_process_port": 0,
        "mixed_precision": "no", "dynamo_backend": "no",
        "num_cpu_threads_per_process": os.environ["OMP_NUM_THREADS"],
    }  # fmt: skip
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    logging.disable(logging.ERROR)  # here, where nothing is computed
    arguments = launch_command_parser().parse_args([*given, "--multi_gpu", "--module", "ssl_vit", *words])
    arguments.signals_to_handle = "SIGQUIT"  # torch would end the processes after 30 s, saved or not
    try:
        with signals.handled(_tell, (*signals.ENDING, signal.SIGINT)):
            launch_command(arguments)
    except ChildFailedError as error:
        rank, failure = min(error.failures.items(), key=lambda item: item[1].timestamp)
        if failure.exitcode < 0:
            name = signals.name_of(-failure.exitcode)
            raise UserError(f"process {rank} was ended by {name}, perhaps because memory did not suffice") from None
        sys.exit(failure.exitcode)
    except SignalException as stopped:
        sys.exit(signals.status_of(stopped.sigval))


def _tell(number: int, frame: FrameType | None) -> None:
    """A signal for the job goes to its processes, which save, and whose status this one takes over.

    Ctrl-C, too: torch's launcher starts them in a session of their own, where no terminal reaches them.
    """
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            child.send_signal(number)
