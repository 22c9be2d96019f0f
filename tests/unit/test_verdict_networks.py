"""Networks beside the Vision Transformer, and what a study makes of options."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from ssl_vit.configs import PoolConfig, ResolvedModel, parse, presets
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.scale import measure_scale
from ssl_vit.exports.timm_folder import load_backbone
from ssl_vit.methods import Facts
from ssl_vit.methods.supervised import SupervisedRecipe
from ssl_vit.models.build import ModelFacts
from ssl_vit.verdict.networks import _RESNETS, PUBLIC, cnn_for, prepare_public
from ssl_vit.verdict.opening import _epochs
from ssl_vit.verdict.options import VerdictConfig, verdict_recipe
from ssl_vit.verdict.tuning import Candidate

from made_study import STUDY


@pytest.mark.parametrize("name", ["test_resnet", "resnet10t", "resnet18", "resnet50"])
def test_parameters_of_resnets_are_timms(name: str) -> None:
    model = timm.create_model(name, num_classes=0)
    assert sum(p.numel() for p in model.parameters()) == _RESNETS[name]


@pytest.mark.parametrize(
    ("parameters", "name"), [(200_000, "test_resnet"), (5_500_000, "resnet10t"), (22_000_000, "resnet34"),
                             (86_000_000, "wide_resnet101_2")],
)  # fmt: skip
def test_the_resnet_of_a_vits_size(parameters: int, name: str) -> None:
    assert cnn_for(None, parameters, 224).name == name


def test_small_images_are_enlarged_for_it() -> None:
    assert [cnn_for(None, 10**6, side).img_size for side in (8, 16, 32, 64, 224)] == [32, 32, 64, 64, 224]
    with pytest.raises(UserError, match=r"--verdict.cnn resnet19 is not a timm model; did you mean resnet18"):
        cnn_for("resnet19", 10**6, 32)


def test_windows_are_not_enlarged_for_it() -> None:
    sizes = [cnn_for(None, 10**6, 32, window).img_size for window in (32, 48, 64, 256)]
    assert sizes == [32, 48, 64, 64]


@pytest.mark.parametrize("given", [None, "resnet18.a1_in1k"])
def test_public_weights_for_larger_images_than_windows_are_left_out(tmp_path: Path, given: str | None) -> None:
    recipe = verdict_recipe()(data=PoolConfig(window=96), verdict=VerdictConfig(public=given))
    study = replace(STUDY, folder=tmp_path, model=ResolvedModel("vit_tiny_patch16_224", 96, pool="mean"), recipe=recipe)
    pixels = np.zeros((2, 3, 128, 128), dtype=np.uint8)
    pool = ImageSet("pool", ArrayRows(pixels, "pool"), np.arange(2), Format(3, 8), Sizes((128, 128), 128), "p")
    why = prepare_public(study, pool, asked=given is not None)
    assert why == f"{given or PUBLIC} reads 224 px, and windows of 96 px (--data.window) are not enlarged"
    assert not list(tmp_path.iterdir())


def test_public_weights_of_their_authors_file(tmp_path: Path) -> None:
    args = {"img_size": 16, "patch_size": 8, "embed_dim": 64, "depth": 1, "num_heads": 1, "num_classes": 0}
    torch.save(timm.create_model("vit_small_patch16_224", **args).state_dict(), tmp_path / "dino.pth")
    recipe = verdict_recipe()(verdict=VerdictConfig(public=str(tmp_path / "dino.pth")))
    model = ResolvedModel("vit_tiny_patch16_224", 16, pool="mean")
    study = replace(STUDY, folder=tmp_path / "v", model=model, recipe=recipe)
    pixels = np.random.default_rng(0).integers(0, 256, (4, 1, 16, 16)).astype(np.uint8)
    pool = ImageSet("pool", ArrayRows(pixels, "pool"), np.arange(4), Format(1, 8), Sizes((16, 16), 16), "p")
    assert prepare_public(study, pool, asked=True) is None
    made = load_backbone(str(tmp_path / "v" / "runs" / "public"))
    assert (made.backbone.channels, made.pool, made.scale) == (1, "cls", measure_scale(pool))
    assert (made.about["objective"], made.about["public"]) == ("public weights", str(tmp_path / "dino.pth"))
    assert not Path("runs/released").exists()


def test_draws_are_nested_in_pre_training_seeds() -> None:
    assert [STUDY.number("mae", draw) for draw in range(5)] == [0, 1, 2, 0, 1]
    assert STUDY.number("scratch", 4) is None
    assert [str(run) for run in STUDY.runs("mae")] == ["v/runs/mae-0", "v/runs/mae-1", "v/runs/mae-2"]
    given = replace(STUDY, given={"mae": ("a", "b")})
    assert [given.number("mae", draw) for draw in range(3)] == [0, 1, 0]


def test_options_of_a_training() -> None:
    chosen = Candidate(3e-4, 0.1, 0.85, 2.0)
    script, scratch = STUDY.training("scratch", 20, 3, chosen, Path("w"))
    assert script == "recipes/supervised.py"
    assert isinstance(scratch, SupervisedRecipe)
    assert (scratch.seed, scratch.eval.labels, scratch.eval.draw) == (3, 20, 3)
    assert (scratch.optim.lr, scratch.optim.weight_decay, scratch.optim.layer_decay) == (3e-4, 0.1, 0.85)
    assert (scratch.fit.batch_size, scratch.fit.min_steps) == (32, 1000)  # half of 1,000, times the tuned 2
    script, mae = STUDY.training("mae", 20, 4, chosen, Path("w"))
    assert script == "eval/finetune.py"
    assert (mae.backbone, mae.seed) == ("v/runs/mae-1", 4)
    assert (mae.fit, mae.augment, mae.supervised) == (scratch.fit, scratch.augment, scratch.supervised)
    assert STUDY.training("scratch", 1000, 0, chosen, Path("w"), steps=77)[1].fit.min_steps == 77
    assert STUDY.steps(1000) == 781  # half of 100 epochs in batches of 64
    assert "run.dir" not in STUDY.command(script, mae)


@pytest.mark.parametrize(("labels", "mixup"), [(1999, 0.0), (2000, 0.8)])
def test_every_method_is_augmented_as_the_studys_preset_says(labels: int, mixup: float) -> None:
    small = replace(STUDY, preset="digits", model=replace(STUDY.model, img_size=28))  # its own preset would be px32
    large = replace(STUDY, preset="px32")
    for start in ("scratch", "mae", "cnn"):
        config = small.training(start, labels, 0, Candidate(3e-4, 0.1, 0.85, 1.0), Path("w"))[1]
        assert (config.augment.policy, config.augment.flip, config.augment.erasing) == ("none", False, 0.0)
        assert (config.augment.crop_scale, config.supervised.mixup) == ((1.0, 1.0), 0.0)
        config = large.training(start, labels, 0, Candidate(3e-4, 0.1, 0.85, 1.0), Path("w"))[1]
        assert (config.augment.policy, config.supervised.mixup) == ("randaugment", mixup)
        assert config.supervised.pool is None


def test_training_that_is_cut_short_is_light_for_every_method() -> None:
    short = replace(STUDY, preset="px32", recipe=verdict_recipe()(verdict=VerdictConfig(length=0.49)))
    for start in ("scratch", "mae", "cnn"):
        for labels in (20, 2000):
            config = short.training(start, labels, 0, Candidate(3e-4, 0.1, 0.85, 2.0), Path("w"))[1]
            augment, mixing = config.augment, config.supervised
            assert (augment.policy, augment.erasing, mixing.mixup, mixing.cutmix) == ("none", 0.0, 0.0, 0.0)
            assert (augment.crop_scale, augment.flip) == ((0.35, 1.0), True)


def test_further_options_reach_the_recipe() -> None:
    words = "--seed 7 --data.path pool --verdict.pretraining 0.1 --mae.optim.base_lr 4e-3 --mae.fit.batch_size 32"
    study = replace(STUDY, recipe=parse(verdict_recipe(), "", words.split()))
    config = study.pretraining("mae", 2)
    assert (config.seed, config.data.path, config.run.dir) == (9, "pool", "v/runs/mae-2")
    assert (config.optim.base_lr, config.fit.batch_size, config.fit.epochs) == (4e-3, 32, 13.9)
    assert study.pretraining("dino", 0).optim.base_lr is None


def test_epochs_among_further_options_are_a_length_that_is_cut() -> None:
    words = "--mae.fit.epochs 50 --dino.fit.epochs 30 --verdict.pretraining 0.5"
    recipe, facts = (
        parse(verdict_recipe(), "", words.split()),
        Facts(1438, STUDY.model, ModelFacts(224, 16, 192, 12, 3)),
    )
    epochs = _epochs(recipe, ("mae", "scratch", "dino"), facts, presets.named("digits"))
    assert epochs == {"mae": 50.0, "dino": 30.0}
    study = replace(STUDY, recipe=recipe, epochs=epochs)
    assert [study.pretraining(start, 0).fit.epochs for start in ("mae", "dino")] == [25.0, 15.0]


@pytest.mark.parametrize("start", ["scratch", "cnn"])
def test_a_split_of_the_pool_does_not_choose_the_baselines_labels(start: str) -> None:
    recipe = replace(STUDY.recipe, data=PoolConfig(path="images", split="train+unlabeled"))
    config = replace(STUDY, recipe=recipe).training(start, 20, 0, Candidate(1e-3, 0.05, 1.0, 1.0), Path("w"))[1]
    assert isinstance(config, SupervisedRecipe)
    assert config.data.path == "images"
    assert config.data.split is None
