"""Units of work for tests of the runner; here, because its processes must find them by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ssl_vit.errors import UserError


def counted(place: Path, number: int) -> dict[str, Any]:
    with (place / "calls").open("a") as calls:
        calls.write(f"{number}\n")
    print(f"unit {number} speaks")
    return {"square": number**2}


def stopping(place: Path, number: int) -> dict[str, Any]:
    counted(place, number)
    raise SystemExit(143)


def mistaken(place: Path) -> dict[str, Any]:
    raise UserError("the images are blue")
