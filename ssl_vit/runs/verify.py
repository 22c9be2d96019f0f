"""Whether the files of a run are still those that it wrote, by hashes or by what they must hold; writes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ssl_vit.core import sums
from ssl_vit.core.errors import UserError
from ssl_vit.core.files import content_of, sha256
from ssl_vit.core.reading import json_lines, mapping_in, object_in
from ssl_vit.methods import LABELLED, METHODS
from ssl_vit.runs import listing
from ssl_vit.runs.arrays import read_arrays
from ssl_vit.runs.networks import FILES, runs_near, weights_hash
from ssl_vit.runs.vectors import read_vectors

State = Literal["whole", "readable", "damaged", "missing", "not checked"]
BAD: tuple[State, ...] = ("damaged", "missing")
_LINES = ("metrics.jsonl", "timing.jsonl", "health.jsonl")
_CHANGING = ("README.md",)
"""Beside hashes, but written again when results come."""
_ASIDE = (sums.NAME, "run.lock")
"""Not a file of the run: what is told of others."""
_UNFINISHED = "no hash was written: its writing was not finished"
_OTHER_VECTORS = "its vectors do not have the hash beside them; an evaluation computes them again"
_NAMED = 8
"""Files without a hash that people are told by name."""


class Checked(NamedTuple):
    """What became of one file."""

    path: Path
    """Below the run."""
    state: State
    """``whole``: its hash is the one on record; ``readable``: none is, and its content makes sense."""
    why: str = ""


def verify(run: Path) -> list[Checked]:
    """Every file of a run, in the order of their names.

    Args:
        run: Its directory, or a folder that was exported.

    Raises:
        UserError: Where there is no run.
    """
    if not run.is_dir() or not any(
        (run / name).exists() for name in ("config.yaml", "environment.json", "config.json")
    ):
        what = "is no run: it holds no config.yaml" if run.exists() else "does not exist"
        raise UserError(f"{run} {what}; give RUN, the folder of a run, or a folder that was exported{runs_near(run)}")
    found: dict[Path, Checked] = {}
    for checked in _all(run):
        found.setdefault(checked.path, checked)
    for path in sorted(run.rglob("*")):
        own = path.relative_to(run)
        if path.is_file() and own not in found and path.name not in _ASIDE and path.suffix != ".sha256":
            found[own] = Checked(own, "not checked")
    return [found[path] for path in sorted(found)]


def _all(run: Path) -> Iterator[Checked]:
    for folder in [run, *(path for path in run.rglob("*") if path.is_dir())]:
        where = folder.relative_to(run)
        yield from (checked._replace(path=where / checked.path) for checked in _folder(folder))
    yield from _weights(run)
    if not (run / "config.json").is_file():
        yield from _missing(run)


def _missing(run: Path) -> Iterator[Checked]:
    """What a run must hold and does not, by what it tells of itself."""
    for name in ("config.yaml", "environment.json"):
        if not (run / name).is_file():
            yield Checked(Path(name), "missing")
    about = listing.read(run)
    if isinstance(about, listing.Unread) or about.method not in {*METHODS, *LABELLED} or about.state == "running":
        return
    came_to_its_end = about.steps is not None and about.step >= about.steps
    if not (came_to_its_end or "unreadable_images" in about.about or (run / "backbone").exists()):
        return
    for path in (Path("metrics.jsonl"), *(Path("backbone", name) for name in FILES)):
        if not (run / path).is_file():
            yield Checked(path, "missing", "training came to its end, which leaves it")
    # A verdict keeps labelled runs without their checkpoints.
    if not about.saved and (about.method in METHODS or (run / "checkpoints").exists()):
        yield Checked(Path("checkpoints"), "missing", "no step is saved any more: the run cannot be continued")


def _folder(folder: Path) -> Iterator[Checked]:
    """Files right in one folder, as far as it is known what they must be."""
    for name, digest in sums.read(folder).items():
        if name not in _CHANGING:
            yield _against(folder, name, digest, f"the hash in {sums.NAME}")
    for path in sorted(folder.glob("step_*.pt")):
        yield from _checkpoint(path)
    for path in sorted(folder.glob("step_*.shards")):
        yield from _in_parts(path)
    for path in sorted(folder.glob("step_*.sha256")):
        of = Path(path.stem if path.stem.endswith(".shards") else f"{path.stem}.pt")
        if not (folder / of).exists():
            yield Checked(of, "missing", f"its hash stands in {path.name}")
    for name in (name for name in _LINES if (folder / name).is_file()):
        yield _lines(folder / name)
    if (folder / "environment.json").is_file():
        yield _readable(Path("environment.json"), object_in(folder / "environment.json"))
    if (folder / "config.yaml").is_file():
        yield _readable(Path("config.yaml"), mapping_in(folder / "config.yaml"))
    for path in sorted(folder.glob("*.part")):
        yield Checked(Path(path.name), "not checked", "half a file that a killed process left; it may be removed")
    if folder.name == "results":
        for path in sorted(folder.glob("*.json")):
            yield _readable(Path(path.name), object_in(path))
        for path in sorted(folder.glob("*.npz")):
            yield _arrays(path)
    if folder.name == "features":
        for path in sorted(folder.glob("*.safetensors")):
            whole = read_vectors(path) is not None
            yield Checked(Path(path.name), "whole" if whole else "damaged", "" if whole else _OTHER_VECTORS)


def _checkpoint(path: Path) -> Iterator[Checked]:
    beside = path.with_suffix(".sha256")
    try:
        digest = content_of(beside).strip().decode("ascii", "replace")
    except OSError:
        yield Checked(Path(path.name), "damaged", _UNFINISHED)
        return
    yield _against(path.parent, path.name, digest, f"the hash in {beside.name}")


def _in_parts(place: Path) -> Iterator[Checked]:
    """The files of a checkpoint that several processes wrote: all that its hashes name, and no other."""
    beside = place.with_suffix(".shards.sha256")
    known = sums.hashes(beside)
    if not known:
        yield Checked(Path(place.name), "damaged", _UNFINISHED)
        return
    for name in sorted({*known, *(path.name for path in place.iterdir())}):
        if name in known:
            checked = _against(place, name, known[name], f"the hash in {beside.name}")
        else:
            checked = Checked(Path(name), "damaged", f"no hash of it is in {beside.name}")
        yield checked._replace(path=place.name / checked.path)


def _against(folder: Path, name: str, digest: str, of: str) -> Checked:
    path = folder / name
    if not path.is_file():
        return Checked(Path(name), "missing")
    try:
        same = sha256(path) == digest
    except OSError as error:
        return Checked(Path(name), "damaged", f"it cannot be read: {error.strerror}")
    return Checked(Path(name), "whole") if same else Checked(Path(name), "damaged", f"its hash is not {of}")


def _readable(name: Path, content: object) -> Checked:
    return Checked(name, "damaged", "it holds no values by name") if content is None else Checked(name, "readable")


def _lines(path: Path) -> Checked:
    lines = json_lines(path)
    if lines.damaged:
        places = ", ".join(map(str, lines.damaged[:5]))
        return Checked(Path(path.name), "damaged", f"{len(lines.damaged)} line(s) cannot be read ({places})")
    steps = [line["step"] for line in lines.whole if isinstance(line.get("step"), int)]
    if steps != sorted(steps):
        return Checked(Path(path.name), "damaged", "its steps are out of order")
    return Checked(Path(path.name), "readable")


def _arrays(path: Path) -> Checked:
    try:
        read_arrays(path, "")
    except UserError:
        return Checked(Path(path.name), "damaged", "its arrays do not have their checksums")
    return Checked(Path(path.name), "readable")


def _weights(run: Path) -> Iterator[Checked]:
    """Exported weights, by the hash that results of this run were judged with."""
    weights = run / "backbone" / "model.safetensors"
    if not weights.is_file() or sums.read(run / "backbone"):
        return
    asked: set[str] = set()
    for path in run.glob("results/*.json"):
        about: Any = (object_in(path) or {}).get("backbone")
        if isinstance(about, dict) and isinstance(about.get("weights"), str):
            asked.add(about["weights"])
    name = weights.relative_to(run)
    if asked and weights_hash(run / "backbone") not in asked:
        yield Checked(name, "damaged", "results were made with other weights")
    elif asked:
        yield Checked(name, "whole")


def table(run: Path, found: list[Checked]) -> str:
    """What was found, for people: all that is wrong, and how many files are well.

    Args:
        run: As for ``verify``.
        found: What it returned.
    """
    wrong = [f"{one.state:<9}{run / one.path}{f': {one.why}' if one.why else ''}" for one in found if one.state in BAD]
    told = [f"note     {run / one.path}: {one.why}" for one in found if one.why and one.state not in BAD]
    whole, readable, unchecked = (
        [str(one.path) for one in found if one.state == state] for state in ("whole", "readable", "not checked")
    )
    words = (
        f"{len(whole)} file(s) have the hash on record, {len(readable)} have none and can be read{_names(readable)}, "
        f"{len(unchecked)} have none and are not checked{_names(unchecked)}, {len(wrong)} are damaged or missing"
    )
    return "\n".join([*wrong, *told, words])


def _names(paths: list[str]) -> str:
    more = f" and {len(paths) - _NAMED} more, which --json lists" if len(paths) > _NAMED else ""
    return f" ({', '.join(paths[:_NAMED])}{more})" if paths else ""


def as_json(run: Path, found: list[Checked]) -> str:
    """The same for other programs.

    Args:
        run: As for ``verify``.
        found: What it returned.
    """
    files = [{"path": str(one.path), "state": one.state, "why": one.why} for one in found]
    return json.dumps({"run": str(run), "sound": not any(one.state in BAD for one in found), "files": files}, indent=1)
