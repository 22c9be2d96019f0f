"""What every script does when it is called: parse, run, and show a user's mistake as one line; needs no torch."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from ssl_vit.configs import BackboneRecipe, networks, papers, parse, presets
from ssl_vit.configs.facts import check_ranges
from ssl_vit.core import signals, slurm
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.core.started import module_of, options_of, scripts, told, usage_name
from ssl_vit.methods import METHODS
from ssl_vit.methods.method import imported
from ssl_vit.runs import lock
from ssl_vit.runs.networks import network_folder

R = TypeVar("R")


class WordsParser(argparse.ArgumentParser):
    """What reads the words of a script that takes a list of files instead of options in groups."""

    def __init__(self, description: str | None) -> None:
        """Describes the script by the name that is typed here."""
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(usage_name(), description=told(description or ""), formatter_class=form)


def all_presets() -> str:
    """What ``--preset`` prints: what presets fill for every method, and each method's own part."""
    return "\n\n".join([presets.table(), networks.table(), *(method.presets() for method in METHODS.values())])


def run_script(main: Callable[[R], Any], recipe: type[R], description: str) -> None:
    """Parses the command line, runs ``main``, and ends the process with status 1 on a user's mistake."""
    config = parse(recipe, description, listing=all_presets)
    with mistakes_told():
        slurm.adopt()
        if not begun(config, sys.argv[1:]):
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
    """What can be seen of a command's options before anything heavy is imported: numbers, and a network's folder.

    Args:
        config: A recipe.

    Raises:
        UserError: For the first that cannot be used.
    """
    check_ranges(config)
    dry, facts = getattr(config, "dry_run", False), getattr(getattr(config, "data", None), "facts", None)
    if facts is not None and not dry:
        raise UserError(f"--data.facts {facts} stands for images in a --dry_run; add that, or leave it out")
    if isinstance(config, BackboneRecipe) and (config.backbone or not dry):
        network_folder(config.backbone)


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
    if hasattr(module, "command"):
        raise UserError(f"ssl-vit {words[0]} is done at once; it needs no job of its own")
    config = parse(options_of(module), module.__doc__ or "", list(words[1:]), listing=all_presets)
    check_ranges(config)
    if hasattr(module, "check"):
        module.check(config)


@contextmanager
def mistakes_told() -> Generator[None, None, None]:
    """Ends the process with one line where a person can mend what is wrong, and after a signal."""
    # Large tensors in pages of 2 MB: torch reads this once, and the system makes small pages one by one.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    try:
        with signals.leaving(), lock.holding():
            yield
    except UserError as error:
        rank = os.environ.get("RANK", "0")
        sys.stderr.write(f"{'' if rank == '0' else f'[process {rank}] '}error: {error}\n")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; the same command continues from the last checkpoint\n")
        sys.exit(130)
