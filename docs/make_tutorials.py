"""Runs what docs/tutorials say, and writes down what comes of it: ``python docs/make_tutorials.py [PAGE ...]``.

A page's commands are its blocks of bash. They run one after another in an empty folder; what they print, and how long
they took, stands behind each. ``<!-- ends with 2 -->`` before a block says how it ends, where that is not with 0, and
``<!-- picture: PLACE as NAME: WORDS -->`` which file is shown there. A command that ends otherwise ends this script,
and the page stays as it was. A notebook's cells are executed where they stand, which needs nbclient and ipykernel.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from ssl_vit.core.text import duration
from ssl_vit.runs.provenance import hardware, versions

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "tutorials"
LINES, WIDTH = 60, 118
"""Of what a command prints, at most; the middle of more lines is left out, and the end of longer ones."""
BLOCK = re.compile(
    r"(?:<!-- ends with (?P<status>\d+) -->\n)?```bash\n(?P<command>.*?)\n```\n"
    r"(?:\n```text\n.*?\n```\n)?(?:\n\*[^*\n]+\*\n)?",
    re.DOTALL,
)
"""A command with what was written behind it the last time."""
_PICTURE = re.compile(r"<!-- picture: (\S+) as (\S+): (.*?) -->\n(?:!\[[^\]]*\]\(\S+\)\n)?")
_MADE = re.compile(r"<!-- made -->\n[^\n]*\n")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_STEP = re.compile(r"(?:step|decoded) [\d.,]+[ /%]")


def told(text: str, folder: Path, most: int = LINES) -> str:
    """What a command printed, as a page shows it.

    Colours, what a bar overwrote, and places of this machine are gone; of many steps the first and the last are left,
    of many lines the beginning and the end, of a very long line the beginning.

    Args:
        text: Both streams.
        folder: Where it ran.
        most: Lines.
    """
    places = {f"{folder.resolve()}/": "", str(folder.resolve()): ".", sys.prefix: "ENVIRONMENT", str(ROOT): "ssl_vit"}
    text = _COLOURS.sub("", text)
    for place, name in {**places, str(Path.home()): "~"}.items():
        text = text.replace(place, name)
    lines = [line.rpartition("\r")[2].rstrip() for line in text.rstrip().split("\n")]
    steps = [i for i, line in enumerate(lines) if _STEP.match(line)]
    inner = set(steps[1:-1])
    kept = [line for i, line in enumerate(lines) if i not in inner]
    if inner:
        kept.insert(steps[0] + 1, f"[{len(inner)} more lines of steps]")
    if len(kept) > most:
        kept[most // 2 : -(most // 2)] = [f"[{len(kept) - 2 * (most // 2)} more lines]"]
    return "\n".join(line if len(line) <= WIDTH else f"{line[:WIDTH]} ..." for line in kept)


def run(page: str, folder: Path, beside: Path) -> str:
    """Runs a page's commands and returns it with what they printed; SystemExit where one ends as it should not.

    Args:
        page: Its text.
        folder: Empty.
        beside: Where the page's pictures lie.
    """
    environment = _environment()
    taken: list[float] = []

    def done(block: re.Match[str]) -> str:
        command, status = block["command"], int(block["status"] or 0)
        print(f"$ {command}", flush=True)
        began = time.perf_counter()
        ended = subprocess.run(
            ["bash", "-ec", command], cwd=folder, env=environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        taken.append(time.perf_counter() - began)
        if ended.returncode != status:
            sys.exit(f"{ended.stdout}\nended with {ended.returncode} instead of {status}; the page stays as it was")
        before = f"<!-- ends with {status} -->\n" if status else ""
        text = told(ended.stdout, folder)
        printed = f"\n```text\n{text}\n```\n" if text else ""
        seconds = duration(taken[-1]) if taken[-1] >= 1 else "less than a second"
        return f"{before}```bash\n{command}\n```\n{printed}\n*{seconds}*\n"

    found = BLOCK.sub(done, page)
    for source, name, _ in _PICTURE.findall(found):
        shutil.copyfile(folder / source, beside / name)
    found = _PICTURE.sub(r"<!-- picture: \1 as \2: \3 -->\n![\3](\2)\n", found)
    return _MADE.sub(lambda _: f"<!-- made -->\n{_made(sum(taken))}\n", found)


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return kept | {"PATH": path, "COLUMNS": "110", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}


def _made(seconds: float) -> str:
    machine, known = hardware(), versions()
    head = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True)
    return (
        f"Run on {date.today():%d %B %Y} on {machine['cpu']}, {machine['cores']} cores, with ssl_vit "
        f"{known['ssl_vit']} (commit {head.stdout.strip()}), Python {known['python']} and torch "
        f"{known['torch']}. All of it took {duration(seconds)}."
    )


def execute(notebook: Path) -> None:
    """Runs a notebook's cells in a new kernel and an empty folder, and keeps what they show.

    Args:
        notebook: The file, which is written again.
    """
    import nbclient
    import nbformat

    content: Any = nbformat.read(notebook, as_version=4)
    with tempfile.TemporaryDirectory() as place:
        nbclient.NotebookClient(content, timeout=1800, resources={"metadata": {"path": place}}).execute(
            env=_environment()
        )
        for cell in (cell for cell in content.cells if cell.cell_type == "code"):
            cell.metadata.pop("execution", None)
            cell.outputs = _tidy(cell.outputs, Path(place))
    content.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    notebook.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _tidy(outputs: Sequence[Any], folder: Path) -> list[Any]:
    """What was printed, both streams as they came, before what was shown; as pages have it."""
    text = "".join(output.text for output in outputs if output.output_type == "stream")
    others = [output for output in outputs if output.output_type != "stream"]
    for output in others:
        if output.output_type == "error":
            output.traceback = [_COLOURS.sub("", line) for line in output.traceback]
    printed = {"output_type": "stream", "name": "stdout", "text": told(text, folder) + "\n"}
    return [*([printed] if text else []), *others]


def main(names: Sequence[str]) -> None:
    """Runs pages and notebooks.

    Args:
        names: Of files in docs/tutorials, without their ending; empty for all.
    """
    files = {path.stem: path for path in sorted(FOLDER.iterdir()) if path.suffix in (".md", ".ipynb")}
    if unknown := [name for name in names if name not in files]:
        sys.exit(f"docs/tutorials has no {', '.join(unknown)}, but {', '.join(files)}")
    for path in (files[name] for name in names or files):
        if path.suffix == ".ipynb":
            execute(path)
            continue
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "story"
            folder.mkdir()
            path.write_text(run(path.read_text(encoding="utf-8"), folder, FOLDER), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
