"""Options of the doctor, which looks at images before anything is trained on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from ssl_vit.configs.data import DataConfig
from ssl_vit.configs.facts import SAME_RUN, Range
from ssl_vit.configs.model import ModelConfig
from ssl_vit.core.files import check_out


@dataclass(frozen=True)
class LooksConfig:
    """What the doctor looks at, and for whom."""

    method: str | None = None
    """The method whose views, length and time are shown: mae, dino, simmim, beit, lejepa, diet; default: mae."""
    decoded: Annotated[int, Range(1)] = 10_000
    """Images that are decoded at most, evenly spaced; large ones fewer, so that a look takes seconds. Headers are read
    of all."""
    seconds: Annotated[float, Range(0)] = 5.0
    """Time that training is tried for, to tell how long all of it will take; 0: it is not tried."""


@dataclass(frozen=True)
class DoctorRecipe:
    """Options of eval/doctor.py."""

    BARE: ClassVar[tuple[str, ...]] = ("data.path",)
    preset: Annotated[str | None, SAME_RUN] = None
    """What fills the options left open: digits, px32, px32-cpu, px64, px96, px128, px224; default: chosen by the
    images' size, and px32-cpu instead of px32 on a CPU. Without a value: prints all of them."""
    out: str | None = None
    """The page to write, such as doctor.html; default: none, the table alone."""
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    doctor: LooksConfig = field(default_factory=LooksConfig)


def check_doctor(cfg: DoctorRecipe) -> None:
    """Refuses, before anything is imported, a page that is none.

    Args:
        cfg: As given.

    Raises:
        UserError: Naming what is there instead.
    """
    if cfg.out is not None:
        check_out(cfg.out, (".html",))
