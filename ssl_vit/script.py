"""What every script does when it is called: parse, run, and show a user's mistake as one line; needs no torch."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TypeVar

from ssl_vit.configs import BackboneRecipe, PredictRecipe, PretrainingRecipe, networks, papers, parse, presets
from ssl_vit.configs.facts import check_ranges
from ssl_vit.configs.paths import check_paths, check_written
from ssl_vit.core import garbage, later, peers, signals, slurm
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.core.notices import write_line
from ssl_vit.core.started import module_of, options_of, scripts, told, usage_name
from ssl_vit.core.text import seconds
from ssl_vit.methods import METHODS
from ssl_vit.methods.distill import DistillRecipe
from ssl_vit.methods.method import imported
from ssl_vit.methods.taught import TaughtRecipe
from ssl_vit.runs import lock
from ssl_vit.runs.disk import disk_told
from ssl_vit.runs.networks import classifier_folder, find_network

R = TypeVar("R")


class WordsParser(argparse.ArgumentParser):
    """What reads the words of a script that takes a list of files instead of options in groups."""

    def __init__(self, description: str | None) -> None:
        """Describes the script by the name that is typed here."""
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(usage_name(), description=told(description or ""), formatter_class=form, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Ends the process with one line in the words of this project.

        Args:
            message: What is wrong, in the library's words.
        """
        options = [name for action in self._actions for name in action.option_strings]
        if missing := re.search(r"arguments are required: (.*)", message):
            message = f"nothing is named; write {self.prog} {missing[1]}"
        elif unknown := re.search(r"unrecognized arguments: (\S+)", message):
            message = f"unknown option {unknown[1]}{did_you_mean(unknown[1], options)} (--help lists all)"
        elif wrong := re.search(r"argument (\S+): invalid int value: '(.*)'", message):
            message = f"{wrong[1]}: expected a whole number, got {wrong[2]}"
        elif lacking := re.search(r"argument (\S+): expected", message):
            message = f"{lacking[1]} needs a value; --help says which"
        sys.stderr.write(f"error: {message}\n")
        sys.exit(2)


def all_presets() -> str:
    """What ``--preset`` prints: what presets fill for every method, and each method's own part."""
    return "\n\n".join([presets.table(), networks.table(), *(method.presets() for method in METHODS.values())])


@signals.unread()
def run_script(main: Callable[[R], Any], recipe: type[R], description: str, words: Sequence[str] | None = None) -> None:
    """Parses words (default: the command line), runs ``main``, and ends with status 1 on a user's mistake."""
    garbage.seldom()
    later.when_needed()
    config = parse(recipe, description, None if words is None else list(words), listing=all_presets)
    with mistakes_told():
        slurm.adopt()
        if not begun(config, sys.argv[1:] if words is None else words):
            main(config)


def begun(config: object, words: Sequence[str]) -> bool:
    """What every command does with its options before the work: looks at them, and is done with a dry run.

    Args:
        config: A recipe.
        words: As typed, without the command.

    Returns:
        Whether there is nothing left to do.

    Raises:
        UserError: For the first option that cannot be used.
    """
    check_options(config)
    if not getattr(config, "dry_run", False):
        return False
    if os.environ.get("RANK", "0") == "0":
        imported("ssl_vit.doctor.dry_run:show")(config, papers.chosen(words))
    return True


def check_options(config: object) -> None:
    """What can be seen of a command's options before anything heavy is imported: numbers, paths, a network's folder.

    Args:
        config: A recipe.

    Raises:
        UserError: For the first that cannot be used.
    """
    check_values(config)
    dry, facts = getattr(config, "dry_run", False), getattr(getattr(config, "data", None), "facts", None)
    if facts is not None and not dry:
        raise UserError(f"--data.facts {facts} stands for images in a --dry_run; add that, or leave it out")
    if isinstance(config, BackboneRecipe) and (config.backbone or not dry):
        find_network(config.backbone)
    if weights := getattr(getattr(config, "model", None), "weights", None):
        find_network(weights, "--model.weights")
    if isinstance(config, DistillRecipe):
        find_network(config.distill.teacher, "--teacher")
    if isinstance(config, TaughtRecipe) and (config.taught.teacher or not dry):
        classifier_folder(config.taught.teacher, "--teacher")
    if isinstance(config, PredictRecipe):
        classifier_folder(config.classifier)
    check_paths(config)


def check_values(config: object) -> None:
    """What can be seen of options by themselves.

    Args:
        config: A recipe.

    Raises:
        UserError: For numbers out of range, addresses where something is written, times that are none, trackers that
            cannot be used, a watch over training on labels, and weights to go on from where random ones are what is
            compared with.
    """
    check_ranges(config)
    check_written(config)
    if max_time := getattr(getattr(config, "fit", None), "max_time", None):
        seconds(max_time)
    weights = getattr(getattr(config, "model", None), "weights", None)
    if weights is not None and not isinstance(config, PretrainingRecipe):
        raise UserError(
            f"--model.weights {weights} is for pre-training ({', '.join(METHODS)}); to train such weights on labels, "
            "use finetune --backbone, and in a verdict --verdict.public"
        )
    watch = getattr(getattr(config, "fit", None), "watch", None)
    if watch is not None and not isinstance(config, PretrainingRecipe):
        raise UserError(
            f"--fit.watch {watch} looks at the features of pre-training ({', '.join(METHODS)}); training on labels is "
            "judged at its end, so leave it out"
        )


def check_words(words: Sequence[str]) -> None:
    """Tells what is wrong with a command that is to run later and elsewhere; ends the process where it cannot be read.

    Args:
        words: Name and options, as behind ``ssl-vit``.

    Raises:
        UserError: Where there is no such command, or its options cannot go together.
    """
    names = scripts()
    if words[0] not in names:
        raise UserError(f"there is no command {words[0]}{did_you_mean(words[0], names)}")
    module = module_of(names[words[0]])
    if hasattr(module, "check_words"):
        module.check_words(list(words[1:]))
        return
    if hasattr(module, "command"):
        raise UserError(f"ssl-vit {words[0]} is done at once; it needs no job of its own")
    config = parse(options_of(module), module.__doc__ or "", list(words[1:]), listing=all_presets)
    check_values(config)
    if hasattr(module, "check"):
        module.check(config)


@contextmanager
def mistakes_told(status: int = 1) -> Generator[None, None, None]:
    """Ends the process with one line where a person can mend what is wrong, and after a signal.

    Args:
        status: Of the process after a mistake; 2 for one in the words that were typed.
    """
    # Large tensors in pages of 2 MB: torch reads this once, and the system makes small pages one by one.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    try:
        with signals.leaving(), lock.holding(), disk_told(), signals.unread():
            yield
    except UserError as error:
        rank = os.environ.get("RANK", "0")
        write_line(f"{'' if rank == '0' else f'[process {rank}] '}error: {error}")
        sys.exit(status)
    except (RuntimeError, ConnectionError) as error:
        signals.hold()
        gone = peers.lost(error)
        if gone is None:
            if "WORLD_SIZE" not in os.environ or not _LEFT.search(str(error)):
                raise
            rank = os.environ.get("RANK", "0")  # nobody is missing: the other one has told why it ended
            write_line(f"{'' if rank == '0' else f'[process {rank}] '}ended, because another process has ended")
            sys.exit(1)
        if peers.is_first():
            write_line(
                f"error: {gone}, and a job ends with any of its processes: killed for want of memory, by a person or "
                "by a scheduler, or after an error of its own that stands above. What is saved is sound; the same "
                "command continues, and torchrun --max-restarts 3 types it by itself"
            )
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(1)  # the backend would wait for the dead at Python's end
    except KeyboardInterrupt:
        if os.environ.get("RANK", "0") == "0":  # Ctrl-C reaches all processes, and one of them tells
            write_line("interrupted; the same command continues from the last checkpoint")
        sys.exit(130)


_LEFT = re.compile(r"gloo.*(Connection (closed|reset) by peer|Socket closed)", re.DOTALL)
"""What gloo says in a process that waits for one which is gone."""
