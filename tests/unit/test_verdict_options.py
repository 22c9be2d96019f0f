"""Options of the verdict: times, methods, numbers of labels."""

from __future__ import annotations

import pytest
from ssl_vit.configs.further import check_further, further_options
from ssl_vit.core.errors import UserError
from ssl_vit.methods.dino import DINORecipe
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.verdict.options import STARTS, VerdictConfig, label_counts, methods_of, seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("10 min", 600), ("1.5h", 5400), ("2d", 172800)]
)
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "ten minutes", "-3h", "0h", "h", "1e3s"])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(UserError, match=r"--verdict.budget .*10m"):
        seconds_of(text)


def test_the_baseline_always_takes_part() -> None:
    assert methods_of(None) == STARTS
    assert methods_of("dino, mae") == ("scratch", "mae", "dino")
    with pytest.raises(UserError, match="did you mean dino"):
        methods_of("dinno")


def test_usual_numbers_of_labels() -> None:
    assert label_counts(VerdictConfig(), 1438, 10, True)[0] == (10, 20, 50, 100, 1438)
    counts, notes = label_counts(VerdictConfig(), 2563, 5, False)
    assert counts == (26, 51, 128, 256, 641, 1282, 2563)
    assert notes == []


def test_fewer_labels_than_classes_are_left_out_and_said() -> None:
    counts, notes = label_counts(VerdictConfig(shares=(0.1, 1.0, 50.0)), 978, 6, False)
    assert counts == (10, 489, 978)
    assert notes == ["0.1 % of 978 labels would be 1, fewer than one for each of the 6 classes; left out"]


def test_labels_per_class_and_numbers_of_labels() -> None:
    assert label_counts(VerdictConfig(per_class=(1, 5)), 100, 4, False)[0] == (4, 20, 100)
    assert label_counts(VerdictConfig(labels=(20, 50)), 100, 4, True)[0] == (20, 50, 100)
    assert label_counts(VerdictConfig(), 100, None, False)[0] == (2, 5, 10, 25, 50, 100)


@pytest.mark.parametrize(
    ("cfg", "classes", "words"),
    [
        (VerdictConfig(shares=(1.0,), labels=(5,)), 3, "give one of them"),
        (VerdictConfig(per_class=(2,)), None, "one class per image"),
        (VerdictConfig(shares=(0.0,)), 3, "per cent"),
        (VerdictConfig(shares=(101.0,)), 3, "per cent"),
        (VerdictConfig(labels=(500,)), 3, "there are 100 training labels"),
        (VerdictConfig(per_class=(50,)), 3, "50 per class are asked for"),
    ],
)
def test_numbers_of_labels_that_cannot_be(cfg: VerdictConfig, classes: int | None, words: str) -> None:
    with pytest.raises(UserError, match=words):
        label_counts(cfg, 100, classes, False)


def test_further_options_of_pre_training() -> None:
    cfg = VerdictConfig(mae="--mae.mask_ratio 0.6 --fit.epochs=50", dino="--dino.head_layers 2")
    check_further(cfg)
    mae = further_options(cfg, "mae")
    assert isinstance(mae, MAERecipe)
    assert (mae.mae.mask_ratio, mae.fit.epochs) == (0.6, 50.0)
    assert further_options(VerdictConfig(), "dino") == DINORecipe()


@pytest.mark.parametrize(
    ("cfg", "words"),
    [
        (
            VerdictConfig(mae="--optim.base_ir 1"),
            r"--verdict.mae --optim.base_ir 1: unknown option --optim.base_ir.*base_lr",
        ),
        (VerdictConfig(dino="--mae.mask_ratio 0.5"), "--verdict.dino .* unknown option --mae.mask_ratio"),
        (VerdictConfig(mae="--fit.epochs many"), "--fit.epochs: expected a number, got many"),
        (VerdictConfig(mae="--fit.epochs"), "--fit.epochs needs a value"),
        (VerdictConfig(mae="--optim.betas '[0.9, 0.95]"), "no closing quotation; close every quote"),
        (VerdictConfig(dino="--dino.momentum 1.5"), "--dino.momentum 1.5 must be at least 0 and at most 1"),
        (VerdictConfig(mae="--data.path elsewhere"), "--data.path is the same for all methods"),
        (VerdictConfig(mae="--model.width=32"), "--model.width is the same for all methods"),
        (VerdictConfig(dino="--seed 3"), "--seed is the same for all methods"),
        (VerdictConfig(mae="--eval.metric top1"), "--eval.metric is the same"),
        (VerdictConfig(mae="--run.dir r"), "--run.dir is the same"),
        (VerdictConfig(mae="--preset"), "--preset is the same"),
        (VerdictConfig(mae="--help"), "--help cannot stand here"),
        (VerdictConfig(mae="-h"), "cannot stand here"),
        (VerdictConfig(mae="--config c.yaml"), "--config cannot stand here"),
        (VerdictConfig(mae="50"), "unexpected argument '50'"),
        (VerdictConfig(mae="--fit.min_steps 5"), "as --fit.epochs"),
    ],
)
def test_mistakes_in_further_options_are_errors_with_the_options_name(cfg: VerdictConfig, words: str) -> None:
    with pytest.raises(UserError, match=words) as told:
        check_further(cfg)
    assert str(told.value).startswith("--verdict.")
    assert "\n" not in str(told.value)
