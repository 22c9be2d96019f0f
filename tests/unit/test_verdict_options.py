"""Options of the verdict: times, methods, numbers of labels."""

from __future__ import annotations

import pickle

import pytest
from ssl_vit.configs import OptimConfig, parse
from ssl_vit.core.errors import UserError
from ssl_vit.methods import METHODS
from ssl_vit.methods.dino import DINORecipe
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.methods.starts import starts
from ssl_vit.script import run_script
from ssl_vit.verdict.options import (
    Comparison,
    VerdictConfig,
    check_verdict,
    label_counts,
    methods_of,
    seconds_of,
    starts_of,
    verdict_recipe,
)


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
    assert methods_of(None) == tuple(name for name, start in starts().items() if start.unasked)
    assert methods_of("lejepa") == ("lejepa", "scratch")
    assert methods_of("dino, mae") == ("mae", "dino", "scratch")
    with pytest.raises(UserError, match="did you mean dino"):
        methods_of("dinno")


def test_networks_take_part_from_scratch_and_with_what_they_may_carry() -> None:
    def found(**options: str) -> dict[str, bool]:
        return starts_of(VerdictConfig(**options))

    usual = found()
    assert list(usual)[:2] == ["mae", "dino"] and list(usual)[-4:] == ["scratch", "cnn", "pixels", "random"]
    assert {"lejepa@cnn", "lejepa@public", "public"} < set(usual)
    assert [name for name, asked in usual.items() if asked] == ["scratch", "pixels", "random"]
    assert found(methods="mae,pixels") == {"mae": True, "scratch": True, "pixels": True}
    assert found(methods="lejepa,cnn") == {"lejepa": True, "lejepa@cnn": True, "scratch": True, "cnn": True}
    several = found(networks="vit,cnn,hybrid", methods="mae,dino")
    assert set(several) == {
        "mae",
        "dino",
        "mae@cnn",
        "dino@cnn",
        "mae@hybrid",
        "dino@hybrid",
        "scratch",
        "cnn",
        "hybrid",
    }
    assert all(several.values())
    assert found(networks="vit")["scratch"] and "cnn" not in found(networks="vit")
    assert found(methods="mae,public")["mae@public"] is False  # goes on from them where the budget allows it
    with pytest.raises(UserError, match=r"--verdict.networks pixels is no network"):
        found(networks="vit,pixels")


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
        (VerdictConfig(per_class=(2,)), None, "one class per image"),
        (VerdictConfig(shares=(0.0,)), 3, "per cent"),
        (VerdictConfig(shares=(101.0,)), 3, "per cent"),
        (VerdictConfig(labels=(500,)), 3, "^--verdict.labels: 500 .* there are 100 training labels; give at most 100$"),
        (VerdictConfig(per_class=(50,)), 3, "^--verdict.per_class: 50 per class are asked for, .*; give at most 33$"),
    ],
)
def test_numbers_of_labels_that_cannot_be(cfg: VerdictConfig, classes: int | None, words: str) -> None:
    with pytest.raises(UserError, match=words):
        label_counts(cfg, 100, classes, False)


def asked(*words: str) -> Comparison:
    return parse(verdict_recipe(), "", list(words))


def test_options_of_single_methods() -> None:
    cfg = asked("--mae.mask_ratio", "0.6", "--mae.fit.epochs=50", "--dino.head_layers", "2", "--seed", "3")
    check_verdict(cfg)
    mae, dino = cfg.of(METHODS["mae"]), cfg.of(METHODS["dino"])
    assert isinstance(mae, MAERecipe) and isinstance(dino, DINORecipe)
    assert (mae.mae.mask_ratio, mae.fit.epochs, dino.dino.head_layers) == (0.6, 50.0, 2)
    assert (mae.mae.norm_pix, mae.optim, dino.fit) == (None, OptimConfig(), DINORecipe().fit)
    assert dino.optim == DINORecipe().optim  # a method's own defaults, not those of all recipes
    assert asked().of(METHODS["dino"]) == DINORecipe()


def test_options_of_single_methods_reach_other_processes() -> None:
    cfg = asked("--mae.optim.base_lr", "4e-3", "--verdict.seeds", "1")
    again = pickle.loads(pickle.dumps(cfg))
    assert again == cfg
    assert type(again) is type(cfg)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--mae.optim.base_ir 1", "unknown option --mae.optim.base_ir; did you mean --mae.optim.base_lr"),
        ("--dino.mask_ratio 0.5", "unknown option --dino.mask_ratio; did you mean --beit.mask_ratio, --mae.mask_ratio"),
        ("--mae.fit.epochs many", "--mae.fit.epochs: expected a number, got many"),
        ("--mae.fit.epochs", "--mae.fit.epochs needs a value"),
        ("--mae.data.path elsewhere", "unknown option --mae.data.path"),
        ("--mae.model.width=32", "unknown option --mae.model.width"),
        ("--dino.seed 3", "unknown option --dino.seed"),
        ("--verdict.mae 50", "unknown option --verdict.mae"),
    ],
)
def test_what_is_no_option_of_a_method_is_one_line(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        asked(*words.split())
    said = capsys.readouterr().err
    assert stopped.value.code == 2
    assert said.startswith("error: ") and said.count("\n") == 1
    assert sentence in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--dino.momentum 1.5", "--dino.momentum 1.5 must be at least 0 and at most 1"),
        ("--mae.fit.batch_size 0", "--mae.fit.batch_size 0 must be at least 1"),
        ("--dino.crops.jitter -1", "--dino.crops.jitter -1 must be at least 0 and at most 5"),
        (
            "--verdict.shares [1] --verdict.labels [5]",
            "--verdict.shares and --verdict.labels both say how many labels; give one of them",
        ),
        ("--mae.fit.min_steps 5", "--mae.fit.min_steps: give the length of pre-training as --mae.fit.epochs instead"),
    ],
)
def test_numbers_that_a_method_cannot_take_are_one_line(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["eval/verdict.py", *words.split()])
    with pytest.raises(SystemExit) as stopped:
        run_script(check_verdict, verdict_recipe(), "")
    assert stopped.value.code == 1
    assert capsys.readouterr().err == f"error: {sentence}\n"
