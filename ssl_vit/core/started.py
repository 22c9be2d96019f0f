"""How this process was started, where the scripts are, and what a person types here to start the next one.

In a clone they are files that are launched: ``accelerate launch recipes/mae.py``. Where the package is installed alone
the same files lie inside it, and ``ssl-vit mae`` runs them. The project writes their names as in a clone; ``told`` says
them as they are typed here.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from shlex import quote
from types import ModuleType
from typing import Any

_PACKAGE = Path(__file__).resolve().parents[1]
_INSTALLED = (_PACKAGE / "recipes").is_dir()
"""Whether the scripts lie inside the package, and not beside it."""
ROOT = _PACKAGE if _INSTALLED else _PACKAGE.parent
"""What holds recipes/ and eval/."""
FOLDERS = ("recipes", "eval")
_MENTION = re.compile(r"(?<![\w./-])(?:(?:accelerate launch|python) )?((?:recipes|eval)/\w+\.py)\b")

threads_open = False
"""Whether the command ``ssl-vit`` chose the number of threads, and not the person."""


def scripts() -> dict[str, str]:
    """Every script by the name of its command, those that train first: its path as in a clone."""
    return {_name(path): f"{room}/{path.name}" for room in FOLDERS for path in sorted((ROOT / room).glob("[!_]*.py"))}


def _name(script: str | Path) -> str:
    return Path(script).stem.replace("_", "-")


@lru_cache(maxsize=16)
def module_of(script: str) -> ModuleType:
    """A script (path as in a clone) as a module: its ``main`` is what a person starts."""
    path = ROOT / script
    loader = SourceFileLoader(f"ssl_vit_script_{path.stem}", str(path))
    module = ModuleType(loader.name)
    loader.exec_module(module)
    return module


def main_of(script: str) -> Callable[..., Any]:
    """A script (path as in a clone) as a function of its options: numbers are made by what a person would type."""
    return module_of(script).main


def options_of(module: ModuleType) -> Any:
    """The class of a script's options: what its ``recipe()`` makes, or what its ``main`` takes."""
    if hasattr(module, "recipe"):
        return module.recipe()
    main = module.main
    kind = next(iter(inspect.signature(main).parameters.values())).annotation
    return main.__globals__[kind] if isinstance(kind, str) else kind


def by_command() -> bool:
    """Whether a person typed ``ssl-vit`` or ``python -m ssl_vit``."""
    started = Path(sys.argv[0])
    return started.stem == "ssl-vit" or started == _PACKAGE / "__main__.py"


def usage_name() -> str | None:
    """What stands before the options in ``--help``; None for the name of a file that is launched."""
    return f"ssl-vit {sys.argv[1]}" if by_command() else None


def _command() -> str | None:
    """What begins a command here; None where files of a clone are launched."""
    if not (_INSTALLED or by_command()):
        return None
    return "ssl-vit" if Path(sys.argv[0]).stem == "ssl-vit" or shutil.which("ssl-vit") else "python -m ssl_vit"


def told(text: str) -> str:
    """A text that names scripts as in a clone ("a run of eval/finetune.py"), with the names that are typed here."""
    command = _command()
    if command is None:
        return text
    return _MENTION.sub(lambda found: f"{command} {_name(found[1])}", text)


def python_line(code: str) -> str:
    """A command that runs a line of Python from any folder.

    Args:
        code: Python; what it names lies at absolute paths.
    """
    special = re.search(r'["$`!\\]', code)
    return f"python -c {quote(code)}" if special else f'python -c "{code}"'


def typed(script: str) -> str:
    """The beginning of a command that runs a script (path as in a clone) from the working directory."""
    command = _command()
    return f"{command} {_name(script)}" if command else f"accelerate launch {quote(os.path.relpath(ROOT / script))}"
