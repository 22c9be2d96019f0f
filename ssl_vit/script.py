"""What every script does when it is called: parse, run, and show a user's mistake as one line; needs no torch."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from ssl_vit.configs import BackboneRecipe, networks, parse, presets
from ssl_vit.configs.check import check_ranges
from ssl_vit.core.errors import UserError
from ssl_vit.core.started import told, usage_name
from ssl_vit.methods import METHODS
from ssl_vit.runs.networks import network_folder

R = TypeVar("R")


class WordsParser(argparse.ArgumentParser):
    """What reads the words of a script that takes a list of files instead of options in groups."""

    def __init__(self, description: str | None) -> None:
        """Describes the script by the name that is typed here.

        Args:
            description: Text above the options in ``--help``.
        """
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(usage_name(), description=told(description or ""), formatter_class=form)


def all_presets() -> str:
    """What ``--preset`` prints: what presets fill for every method, and each method's own part."""
    return "\n\n".join([presets.table(), networks.table(), *(method.presets() for method in METHODS.values())])


def run_script(main: Callable[[R], Any], recipe: type[R], description: str) -> None:
    """Parses the command line, runs, and ends the process with status 1 on a user's mistake.

    Args:
        main: The script's function of its config.
        recipe: The config's class.
        description: Text above the options in ``--help``.
    """
    config = parse(recipe, description, listing=all_presets)
    with mistakes_told():
        check_options(config)
        main(config)


def check_options(config: object) -> None:
    """What can be seen of a command's options before anything heavy is imported: numbers, and a network's folder.

    Args:
        config: A recipe.

    Raises:
        UserError: For the first that cannot be used.
    """
    check_ranges(config)
    if isinstance(config, BackboneRecipe):
        network_folder(config.backbone)


@contextmanager
def mistakes_told() -> Generator[None, None, None]:
    """Ends the process with one line where a person can mend what is wrong, and after Ctrl-C."""
    # Large tensors in pages of 2 MB: torch reads this once, and the system makes small pages one by one.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    try:
        yield
    except UserError as error:
        rank = os.environ.get("RANK", "0")
        sys.stderr.write(f"{'' if rank == '0' else f'[process {rank}] '}error: {error}\n")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; the same command continues from the last checkpoint\n")
        sys.exit(130)
