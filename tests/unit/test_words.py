"""A config as words that parse back to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ssl_vit.configs import (
    AugmentConfig,
    FitConfig,
    KNNRecipe,
    LabelledDataConfig,
    LabelsConfig,
    LinearConfig,
    LinearRecipe,
    OptimConfig,
    PoolConfig,
    as_command,
    as_words,
    parse,
)
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.methods.supervised import FinetuneRecipe, SupervisedRecipe


@pytest.mark.parametrize("recipe", [MAERecipe, SupervisedRecipe, FinetuneRecipe, KNNRecipe, LinearRecipe])
def test_defaults_need_no_words(recipe: Any) -> None:
    assert as_words(recipe()) == []


@given(
    path=st.text("abz/ ._$'*(~é", min_size=1).map(lambda s: f"x{s}y"),
    lr=st.floats(1e-12, 10, allow_nan=False),
    seed=st.integers(0, 2**32 - 1),
    flip=st.sampled_from([None, True, False]),
    clip=st.sampled_from([None, 0.5, 1.0]),
    labels=st.sampled_from([None, 7]),
)
def test_words_parse_back(path: str, lr: float, seed: int, flip: bool, clip: float, labels: int) -> None:
    base = SupervisedRecipe()
    config = replace(
        base, seed=seed, optim=replace(base.optim, lr=lr), augment=AugmentConfig((0.5, 1.0), flip=flip),
        fit=replace(base.fit, clip_grad=clip), data=replace(base.data, path=path),
        eval=LabelsConfig(LabelledDataConfig(path), labels, 2, held_out=True),
    )  # fmt: skip
    assert parse(SupervisedRecipe, "", as_words(config)) == config


def test_lists_and_groups_parse_back() -> None:
    linear = LinearRecipe("a b", linear=LinearConfig(pool="mean", rates=(1.0,), decays=(1e-5, 0.1)))
    assert parse(LinearRecipe, "", as_words(linear)) == linear
    mae = MAERecipe(data=PoolConfig(path="pool", transductive=True), optim=OptimConfig(betas=(0.8, 0.9)),
                    fit=FitConfig(epochs=3.0))  # fmt: skip
    assert parse(MAERecipe, "", as_words(mae)) == mae


def test_a_command_is_quoted() -> None:
    command = as_command("eval/knn.py", KNNRecipe("my runs/$HOME"))
    assert command == "accelerate launch eval/knn.py --backbone 'my runs/$HOME'"
