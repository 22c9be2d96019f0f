"""Weight averages: which networks are taken in, never to the worse of the best one alone, and what is told of them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ssl_vit.configs.fit import OptimConfig
from ssl_vit.evaluation.transfer.soup import _rate, _words, average, choose
from ssl_vit.methods.supervised import FinetuneRecipe


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=5),
    st.sampled_from(["uniform", "greedy"]),
    st.sampled_from([1.0, -1.0]),
    st.integers(0, 1000),
)
def test_no_choice_is_worse_on_held_out_labels_than_the_best_single_one(
    alone: list[int], kind: Any, sign: float, seed: int
) -> None:
    rng, known = np.random.default_rng(seed), dict[tuple[int, ...], float]()

    def mixed(members: tuple[int, ...]) -> float:
        return known.setdefault(members, float(rng.integers(0, 6)))

    found = choose(kind, [float(v) for v in alone], sign, mixed)
    best = max(sign * value for value in alone)
    assert sign * found.value >= best == sign * alone[found.single]
    if len(found.members) > 1:
        assert found.value == known[found.members]
        assert kind == "greedy" or found.members == tuple(range(len(alone)))
    else:
        assert found.members == (found.single,) and found.value == alone[found.single]


def test_greedy_takes_in_what_does_not_hurt() -> None:
    values = {(1, 2): 90.0, (0, 1, 2): 85.0, (1, 2, 3): 90.0}
    asked: list[tuple[int, ...]] = []

    def mixed(members: tuple[int, ...]) -> float:
        asked.append(members)
        return values[members]

    found = choose("greedy", [70.0, 88.0, 80.0, 60.0], 1.0, mixed)
    assert asked == [(1, 2), (0, 1, 2), (1, 2, 3)]
    assert found == ((1, 2, 3), 90.0, 1, None)
    worse = choose("uniform", [70.0, 88.0], 1.0, lambda members: 87.0)
    assert worse == ((1,), 88.0, 1, 87.0)
    assert choose("greedy", [70.0, 88.0], 1.0, lambda members: 87.0) == worse


def test_the_average_of_weights() -> None:
    states = [{"w": torch.tensor([v, 2 * v]), "n": torch.tensor(3)} for v in (1.0, 4.0)]
    found = average(states)
    assert found["w"].tolist() == [2.5, 5.0] and found["w"].dtype == torch.float32
    assert found["n"].item() == 3


@pytest.mark.parametrize("kind", ["greedy", "uniform"])
def test_an_average_that_is_worse_is_not_taken(kind: Literal["greedy", "uniform"]) -> None:
    """Two networks that are right in opposite ways: the mean of their weights tells nothing apart."""
    x, truth = torch.tensor([[1.0, 0.5], [2.0, -1.0], [-1.0, 1.0], [-2.0, 0.0]]), torch.tensor([0, 0, 1, 1])

    def network(first: float, second: float) -> dict[str, torch.Tensor]:
        weight = torch.zeros(2, 2)
        weight[0] = torch.tensor([first, second])
        return {"weight": weight, "bias": torch.zeros(2)}

    states = [network(-0.9, 4.0), network(1.0, 0.0), network(-1.2, -4.0)]

    def value(chosen: tuple[int, ...]) -> float:
        net = torch.nn.Linear(2, 2)
        net.load_state_dict(average([states[i] for i in chosen]))
        return 100 * float((net(x).argmax(1) == truth).double().mean())

    alone = [value((i,)) for i in range(3)]
    found = choose(kind, alone, 1.0, value)
    assert alone[1] == 100.0 and value((0, 1, 2)) < 100.0
    assert (found.members, found.value, found.single) == ((1,), 100.0, 1)
    assert found.refused is not None and found.refused < 100.0
    said = _words(found, kind, alone, "top1")
    assert said.startswith("best of 3 fine-tunings, no soup: ") and ", and the average is worse with " in said


def test_a_fine_tuning_is_told_by_what_it_is_asked_for() -> None:
    assert _rate(FinetuneRecipe(optim=OptimConfig(base_lr=1e-3))) == "base rate 0.001 (per 256 images)"
    assert _rate(FinetuneRecipe(optim=OptimConfig(lr=2e-3))) == "learning rate 0.002"
