"""Labelled sets and suites of them that a transfer suite knows by name; needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

GROUPS = ("natural", "specialised", "structured")
"""Of the tasks of VTAB (Zhai et al. 2019, section 2), in the order of tables; other groups come behind them."""


@dataclass(frozen=True)
class KnownSet:
    """A set on the Hugging Face Hub."""

    path: str
    """As ``--eval.data.path`` takes it."""
    group: str = "natural"
    options: Mapping[str, Any] = field(default_factory=lambda: dict[str, Any]())
    """What has to be said of it, by dotted names."""
    imagenet: bool = False
    """Whether ReaL labels are about its test images."""


def _vtab(name: str, group: str) -> KnownSet:
    return KnownSet(f"clip-benchmark/wds_vtab-{name}", group)


SETS: Mapping[str, KnownSet] = MappingProxyType(
    {
        "cifar10": KnownSet("uoft-cs/cifar10"),
        "cifar100": KnownSet("uoft-cs/cifar100", options={"eval.data.label_column": "fine_label"}),
        "pets": KnownSet("timm/oxford-iiit-pet", options={"eval.data.label_column": "label"}),
        "flowers102": KnownSet("dpdl-benchmark/oxford_flowers102"),
        "imagenet": KnownSet("ILSVRC/imagenet-1k", options={"eval.data.test_split": "validation"}, imagenet=True),
        "caltech101": _vtab("caltech101", "natural"),
        "dtd": _vtab("dtd", "natural"),
        "svhn": _vtab("svhn", "natural"),
        "sun397": KnownSet("tanganke/sun397"),
        "camelyon": _vtab("pcam", "specialised"),
        "eurosat": _vtab("eurosat", "specialised"),
        "resisc45": _vtab("resisc45", "specialised"),
        "retinopathy": _vtab("diabetic_retinopathy", "specialised"),
        "clevr-count": _vtab("clevr_count_all", "structured"),
        "clevr-distance": _vtab("clevr_closest_object_distance", "structured"),
        "dmlab": _vtab("dmlab", "structured"),
        "kitti-distance": _vtab("kitti_closest_vehicle_distance", "structured"),
        "dsprites-location": _vtab("dsprites_label_x_position", "structured"),
        "dsprites-orientation": _vtab("dsprites_label_orientation", "structured"),
        "smallnorb-azimuth": _vtab("smallnorb_label_azimuth", "structured"),
        "smallnorb-elevation": _vtab("smallnorb_label_elevation", "structured"),
    }
)
"""By the name that ``--suite`` takes. Where the hub has moved one, a suite file names the new place."""


@dataclass(frozen=True)
class KnownSuite:
    """Several sets under one name."""

    sets: tuple[str, ...]
    labels: int | None = None
    """How many training labels of each are used at most; None for all."""


_TASKS = {
    "natural": ("caltech101", "cifar100", "dtd", "flowers102", "pets", "svhn", "sun397"),
    "specialised": ("camelyon", "eurosat", "resisc45", "retinopathy"),
    "structured": (
        "clevr-count", "clevr-distance", "dmlab", "kitti-distance", "dsprites-location", "dsprites-orientation",
        "smallnorb-azimuth", "smallnorb-elevation",
    ),
}  # fmt: skip
SUITES: Mapping[str, KnownSuite] = MappingProxyType(
    {
        "small": KnownSuite(("cifar10", "cifar100", "pets", "flowers102")),
        "vtab": KnownSuite(tuple(name for group in GROUPS for name in _TASKS[group]), 1000),
        **{f"vtab-{group}": KnownSuite(names, 1000) for group, names in _TASKS.items()},
    }
)
"""By the name that ``--suite`` takes. Those of VTAB use 1,000 training labels, as VTAB-1k does, but a draw of ours."""
