"""Which processor this is: speed depends on its family and model, which its name often hides."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_TOLD = Path("/proc/cpuinfo")
_KIND = {"cpu family": "family", "model": "model", "stepping": "stepping"}
"""What the file tells of a processor beside its name, and what it is called here."""


@dataclass(frozen=True)
class Processor:
    """The first processor of a machine, as Linux tells of it; elsewhere nothing is known."""

    vendor: str = ""
    """As ``AuthenticAMD`` or ``GenuineIntel``."""
    family: int = 0
    model: int = 0
    abilities: frozenset[str] = frozenset()
    """Names of its extensions, as ``avx512_bf16``."""
    name: str = ""
    """With what tells it from others of that name; empty where neither is told, as of ARM's."""


@lru_cache(maxsize=1)
def this_processor() -> Processor:
    """The processor this runs on."""
    with suppress(OSError):
        return processor_in(_TOLD.read_text())
    return Processor()


def processor_in(told: str) -> Processor:
    """What a text says of its first processor.

    Args:
        told: Content of /proc/cpuinfo.
    """
    pairs = (line.partition(":") for line in told.partition("\n\n")[0].splitlines())
    found = {key.strip(): value.strip() for key, _, value in pairs}
    family, model = (int(n) if n.isdigit() else 0 for n in (found.get("cpu family", ""), found.get("model", "")))
    kind = " ".join(f"{said} {found[key]}" for key, said in _KIND.items() if key in found)
    name = ", ".join(part for part in (found.get("model name", ""), kind) if part)
    return Processor(found.get("vendor_id", ""), family, model, frozenset(found.get("flags", "").split()), name)
