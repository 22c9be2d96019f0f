"""What every result says about how it was made, whether a bar was met, and where it is written."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
Part = dict[str, Any]
"""Of a result: its rows, and how they were made."""
_BESIDE = ("transformers", "lightly", "faiss-cpu", "opencv-python-headless", "tifffile", "pyarrow")


def about(command: str, device: str = "CPU, one thread", **more: Any) -> dict[str, Any]:
    """Command, commit, versions and hardware of a result.

    Args:
        command: As a reader would type it.
        device: What the rows were measured on.
        more: Whatever else belongs to it.
    """
    from ssl_vit.runs.provenance import commit, hardware, versions

    found = versions()
    for package in _BESIDE:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    known = os.environ.get("COMMIT") or commit()  # a copy of the checkout on another machine has not its history
    return {
        "command": command, "commit": known, "versions": found, "hardware": {**hardware(), "device": device}, **more
    }  # fmt: skip


def made_by(about: dict[str, Any], packages: Sequence[str] = ("torch", "timm", "transformers", "lightly")) -> str:
    """The last line of a result.

    Args:
        about: What ``about`` returned.
        packages: Those to name, where they took part.
    """
    used = ", ".join(f"{p} {about['versions'][p]}" for p in (*packages, "python") if p in about["versions"])
    hardware = about["hardware"]
    cpu = f"{hardware['cores']} cores of {hardware['cpu']}"
    device = hardware.get("device", "CPU, one thread")
    rounds = f" {about['rounds']} rounds." if "rounds" in about else ""
    made = f"Made by `{about['command']}` at commit {about['commit']} with {used}"
    return f"{made}, on {device}; the machine has {cpu}.{rounds}"


def same_command(script: str, words: list[str]) -> str:
    """The command as a reader would type it: without places of this machine and the folders that it writes."""
    named = {"--official": "CHECKOUT", "--official_mae": "CHECKOUT", "--official_dino": "CHECKOUT",
             "--networks": "CHECKOUT", "--data": "FOLDER"}  # fmt: skip
    kept = [named.get(before, word) for before, word in zip(["", *words], words, strict=False)
            if not {"--out", "--work"} & {before, word}]  # fmt: skip
    kept = ["RUN" if before == "--backbone" and word.startswith("/") else word
            for before, word in zip(["", *kept], kept, strict=False)]  # fmt: skip
    kept = [f'"{word}"' if " " in word else word for word in kept]
    runner = "bash" if script.endswith(".sh") else "python"
    return " ".join([runner, f"benchmarks/{script}", *kept])


def paragraph(doc: str | None, number: int) -> str:
    """One paragraph of a benchmark's own explanation."""
    return (doc or "").split("\n\n")[number].strip()


def verdict(reached: float, bar: float | None) -> str:
    """Whether a ratio meets its bar, or by how much it is missed."""
    if bar is None:
        return ""
    if reached >= bar:
        return f"{bar:g}: met"
    return f"{bar:g}: missed by {bar - reached:.2f}, ours takes {bar / reached - 1:.0%} too long"


def write(out: Path, name: str, parts: Part, lines: list[str]) -> None:
    """Writes OUT/NAME.json and OUT/NAME.md."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(parts, indent=1) + "\n")
    (out / f"{name}.md").write_text("\n".join([*lines, ""]))


def gpu_folder(device: str) -> Path:
    """Where results of a GPU go: $OUT, or its own folder here."""
    short = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return Path(os.environ.get("OUT") or RESULTS / f"gpu-{short}")


def machine(part: Part) -> str:
    """What the rows of a part were measured on: the GPU, or the processor."""
    hardware = part["about"]["hardware"]
    return hardware["cpu"] if hardware["device"].startswith("CPU") else hardware["device"]


def write_parts(
    out: Path, name: str, head: list[str], titles: dict[str, str], parts: dict[str, Part],
    body: Callable[[str, Part], list[str]], summary: Callable[[dict[str, Part]], list[str]] | None = None,
) -> None:  # fmt: skip
    """Puts measured parts into OUT/NAME.json, each in its own section's place, and writes OUT/NAME.md from all of it.

    With ``summary`` a part is of one kind of machine ("KEY, MACHINE" in the file), and those of other machines are
    kept beside it: what is fast on one processor need not be on another.

    Args:
        out: Folder.
        name: Of both files.
        head: Lines above the sections.
        titles: Of all sections, in their order.
        parts: The measured ones.
        body: Lines of a section.
        summary: Lines above all sections, of all parts.
    """
    place = out / f"{name}.json"
    stored: dict[str, Part] = json.loads(place.read_text()) if place.exists() else {}
    if summary is not None:
        stored |= {f"{key}, {machine(part)}": part for key, part in parts.items()}
        titles = {
            f"{key}, {kind}": f"{title}, {kind}"
            for kind in sorted(map(machine, stored.values()))
            for key, title in titles.items()
        }
    else:
        stored |= parts
    stored = {key: stored[key] for key in titles if key in stored}
    lines = [*head, *(summary(stored) if summary else [])]
    for key, part in stored.items():
        lines += ["", f"## {titles[key]}", "", *body(key, part), "", made_by(part["about"])]
    write(out, name, stored, lines)
