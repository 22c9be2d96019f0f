"""Tables of many comparisons with one baseline: how often equal methods raise any alarm, and what large gains show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

BATCH = 40
"""Tables at once."""
LEVELS = (-0.2, 0.3, 0.7, 1.0, 1.9)
"""Of all methods at every number of labels, in standard deviations: 42 to 97 %."""
GAIN = 30.0
"""Points that the first method is ahead, for the power."""


@dataclass(frozen=True)
class Family:
    """Equal methods, each with networks of its own, against one baseline at several numbers of labels."""

    name: str
    world: Any
    """A World of bench_statistics."""
    methods: int = 11
    counts: tuple[float, ...] = LEVELS
    own: tuple[float, ...] = ()
    """Standard deviation between pre-training seeds of the methods, repeated for all; empty for the world's."""
    baseline: float | None = None
    """Between seeds of the baseline; None for the world's, or none where ``own`` is given."""


def family_wise(family: Family, times: int, rng: np.random.Generator) -> dict[str, Any]:
    """False alarms of Holm's adjustment in percent of tables, and of gains of 30 points how many are found.

    Both are those of Holm's first step: what it finds later is a little more.

    Args:
        family: What is simulated.
        times: How many tables.
        rng: Random numbers.
    """
    from ssl_vit.statistics.families import sheltered
    from ssl_vit.statistics.paired import Estimates, two_sided

    batches = [_tables(family, rng) for _ in range(max(1, times // BATCH))]
    found = Estimates(*(np.concatenate(parts) for parts in zip(*batches, strict=True)))  # [times * counts * methods]
    methods, counts = family.methods, len(family.counts)
    groups = np.arange(len(found.estimate)) // methods

    def clear(p: np.ndarray) -> np.ndarray:
        return (p * (methods * counts) < 0.05).reshape(-1, counts, methods)

    def ours(found: Estimates) -> np.ndarray:
        return clear(sheltered(found, groups)) & (found.p < 0.05).reshape(-1, counts, methods)

    def fewest(found: Estimates) -> np.ndarray:
        return clear(two_sided(found.estimate, found.error, found.df))

    ahead = found._replace(estimate=found.estimate + GAIN * (np.arange(len(groups)) % methods == 0))
    world = family.world
    first = found.replicates.reshape(-1, counts, methods)[:, 0, 0]
    kinds = {"ours": ours, "own spread": lambda found: clear(found.p), "smallest df": fewest}
    return {
        "name": family.name, "methods": methods, "counts": counts, "seeds": world.seeds, "draws": world.draws,
        "deviation": float(np.sqrt(first.mean())),
        "alarms": {name: 100 * float(kind(found).any((1, 2)).mean()) for name, kind in kinds.items()},
        "power": {name: [100 * float(v) for v in kind(ahead)[:, :, 0].mean(0)] for name, kind in kinds.items()},
    }  # fmt: skip


def _tables(family: Family, rng: np.random.Generator) -> Any:
    """Estimates of tables: times, numbers of labels and methods, in this order."""
    from ssl_vit.statistics.paired import Estimates, estimate_many

    world, methods = family.world, family.methods
    seeds, _ = world.nesting
    own = family.own or (world.seed,)
    baseline = family.baseline if family.baseline is not None else 0.0 if family.own else world.seed

    def some(sd: float, *shape: int) -> np.ndarray:
        return np.float32(sd) * rng.standard_normal((BATCH, *shape), dtype=np.float32)

    def hits(level: float, ability: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        noise = rng.standard_normal((BATCH, world.draws, world.images), dtype=np.float32)
        return noise < level * world.spread + ability + drawn + some(world.draw, world.draws, 1)

    common = some(world.image, 1, world.images)
    drawn = [some(world.both_draw, world.draws, 1) for _ in family.counts]
    theirs = common + some(world.own_image, 1, world.images) + some(baseline, world.draws, 1)
    against = [hits(level, theirs, d) for level, d in zip(family.counts, drawn, strict=True)]
    cells: list[list[Estimates]] = [[] for _ in family.counts]
    for method in range(methods):
        begun = some(own[method % len(own)], world.seeds, 1)[:, seeds]
        ours = common + some(world.own_image, 1, world.images) + begun
        for place, (level, d) in enumerate(zip(family.counts, drawn, strict=True)):
            matrices = 100.0 * (hits(level, ours, d).astype(np.float64) - against[place])
            cells[place].append(estimate_many(matrices, seeds, None))
    rows = (np.array([[cell[i] for cell in row] for row in cells]) for i in range(len(cells[0][0])))
    return Estimates(*(np.moveaxis(row, -1, 0).reshape(-1) for row in rows))
