"""Networks beside the Vision Transformer, and what a study makes of options."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from ssl_vit.configs import ModelConfig, PoolConfig, ResolvedModel, parse
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.scale import measure_scale
from ssl_vit.exports.timm_folder import load_backbone
from ssl_vit.methods.lejepa import LeJEPARecipe
from ssl_vit.methods.supervised import SupervisedRecipe
from ssl_vit.training.forecast import Cost
from ssl_vit.verdict import fitting, opening
from ssl_vit.verdict.estimate import Pace
from ssl_vit.verdict.fitting import Counted, counted
from ssl_vit.verdict.networks import _RESNETS, PUBLIC, cnn_for, networks_beside, prepare_public
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
    assert [cnn_for(None, 10**6, side, small=True).img_size for side in (8, 32, 40, 64)] == [32, 32, 40, 64]
    with pytest.raises(UserError, match=r"--verdict.cnn resnet19 is neither a short .*; did you mean resnet18"):
        cnn_for("resnet19", 10**6, 32)
    own = [cnn_for(name, 10**6, 32).img_size for name in ("resnet_mini", "convnext_micro", "resnet18")]
    assert own == [32, 32, 64]  # what is made for small images reads them as they are


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
    long = replace(STUDY.recipe, verdict=replace(STUDY.recipe.verdict, length=10.0))  # two million images are seen
    large = replace(STUDY, preset="px32", recipe=long)
    for start in ("scratch", "mae", "cnn"):
        config = small.training(start, labels, 0, Candidate(3e-4, 0.1, 0.85, 1.0), Path("w"))[1]
        assert (config.augment.policy, config.augment.flip, config.augment.erasing) == ("none", False, 0.0)
        assert (config.augment.crop_scale, config.supervised.mixup) == ((1.0, 1.0), 0.0)
        config = large.training(start, labels, 0, Candidate(3e-4, 0.1, 0.85, 1.0), Path("w"))[1]
        assert (config.augment.policy, config.supervised.mixup) == ("randaugment", mixup)
        assert (config.augment.crop, config.augment.crop_scale) == ("random_resized", (0.35, 1.0))
        assert config.supervised.pool is None


def test_training_that_sees_few_images_is_light_for_every_method() -> None:
    short = replace(STUDY, preset="px32", recipe=verdict_recipe()(verdict=VerdictConfig(length=0.49)))
    for start in ("scratch", "mae", "cnn"):
        for labels in (20, 2000, 20_000):
            config = short.training(start, labels, 0, Candidate(3e-4, 0.1, 0.85, 2.0), Path("w"))[1]
            augment, mixing = config.augment, config.supervised
            assert (augment.policy, augment.erasing, mixing.mixup, mixing.cutmix) == ("none", 0.0, 0.0, 0.0)
            assert (augment.crop, augment.crop_scale, augment.flip) == ("pad", (1.0, 1.0), True)
    of_files = replace(short, recipe=replace(short.recipe, data=replace(short.recipe.data, crop_from="file")))
    assert of_files.augmentation(20)[0].crop == "random_resized"  # padding would need all of every file


def test_further_options_reach_the_recipe() -> None:
    words = "--seed 7 --data.path pool --verdict.pretraining 0.1 --mae.optim.base_lr 4e-3 --mae.fit.batch_size 32"
    study = replace(STUDY, recipe=parse(verdict_recipe(), "", words.split()))
    config = study.pretraining("mae", 2)
    assert (config.seed, config.data.path, config.run.dir) == (9, "pool", "v/runs/mae-2")
    assert (config.optim.base_lr, config.fit.batch_size, config.fit.epochs) == (4e-3, 32, 13.9)
    assert study.pretraining("dino", 0).optim.base_lr is None


def test_epochs_among_further_options_are_a_length_that_is_cut() -> None:
    words = "--mae.fit.epochs 50 --dino.fit.epochs 30 --verdict.pretraining 0.5"
    study = replace(STUDY, recipe=parse(verdict_recipe(), "", words.split()), starts=("mae", "scratch", "dino"))
    epochs = {start: found.epochs for start, found in counted(study, images_of(8), 8, cpu=False).items()}
    assert epochs == {"mae": 50.0, "dino": 30.0}
    study = replace(study, epochs=epochs)
    assert [study.pretraining(start, 0).fit.epochs for start in ("mae", "dino")] == [25.0, 15.0]


def images_of(side: int, count: int = 1438) -> ImageSet:
    pixels = np.zeros((count, 1, side, side), dtype=np.uint8)
    return ImageSet("pool", ArrayRows(pixels, "pool"), np.arange(count), Format(1, 8), Sizes((side, side), side), "p")


def test_a_method_on_another_network_and_from_public_weights() -> None:
    study = replace(STUDY, epochs={"lejepa@cnn": 100.0, "lejepa@public": 10.0}, lengths={"lejepa@cnn": 0.3})
    config = study.pretraining("lejepa@cnn", 1)
    assert isinstance(config, LeJEPARecipe)
    assert (config.model, config.preset, config.seed) == (ModelConfig("test_resnet", 32), "digits", 1)
    assert (config.fit.epochs, config.run.dir) == (30.0, "v/runs/lejepa@cnn-1")
    script, tuned = study.training("lejepa@cnn", 20, 4, study.usual("lejepa@cnn", 20), Path("w"))
    assert (script, tuned.backbone) == ("eval/finetune.py", "v/runs/lejepa@cnn-1")
    config = study.pretraining("lejepa@public", 0)
    assert (config.model, config.fit.epochs) == (ModelConfig(weights="v/runs/public"), 10.0)
    assert [study.baseline(s) for s in ("mae", "lejepa@cnn", "cnn", "public", "lejepa@public")] == [
        "scratch", "cnn", "cnn", "public", "public"
    ]  # fmt: skip


def test_networks_are_a_list_in_the_size_of_the_vit() -> None:
    def found(names: str, parameters: int) -> dict[str, str | None]:
        cfg = VerdictConfig(networks=names)
        beside = networks_beside(cfg, STUDY.model, parameters, None, "digits")
        return {name: model.name for name, model in beside.items()}

    assert found("vit", 200_000) == {}
    assert found("vit,cnn,hybrid,resnet18", 200_000) == {
        "cnn": "test_resnet", "hybrid": "hybrid_micro", "resnet18": "resnet18"
    }  # fmt: skip
    assert found("swin, pvt_micro", 1_200_000) == {"swin": "swin_mini", "pvt_micro": "pvt_micro"}
    with pytest.raises(UserError, match=r"--verdict.networks resnet19 is neither a short .*; did you mean resnet18"):
        found("resnet19", 200_000)
    with pytest.raises(UserError, match=r"--verdict.networks cn is neither a short .*; did you mean cnn"):
        found("cn", 200_000)


@pytest.mark.parametrize(
    ("preset", "parameters", "name", "size"),
    [("px32-cpu", 1_200_000, "resnet_mini", 32), ("px32-cpu", 200_000, "resnet_micro", 32),
     ("px32", 5_500_000, "resnet10t", 64), ("digits", 200_000, "test_resnet", 64)],
)  # fmt: skip
def test_the_cnn_is_what_a_method_has_for_the_preset(preset: str, parameters: int, name: str, size: int) -> None:
    vit = ResolvedModel("vit_tiny_patch16_224", 32, pool="mean")
    cnn = networks_beside(VerdictConfig(), vit, parameters, None, preset)["cnn"]
    assert (cnn.name, cnn.img_size, cnn.pool) == (name, size, "mean")
    given = networks_beside(VerdictConfig(cnn="resnet18"), vit, parameters, None, preset)["cnn"]
    assert (given.name, given.img_size) == ("resnet18", 64)


@pytest.mark.parametrize(("bytes_free", "left_out"), [(10**12, set()), (10**9, {"dino"})])
def test_what_does_not_fit_into_memory_is_not_tried(bytes_free: int, left_out: set[str], monkeypatch) -> None:
    monkeypatch.setattr(fitting, "free_memory", lambda: bytes_free)
    costs = {"mae": Counted(100.0, Cost(1e7, 1e3, kept=1e5, weights=1e6), 128),
             "dino": Counted(100.0, Cost(1e7, 1e3, kept=4e7, weights=1e6), 128)}  # fmt: skip
    why = fitting.cannot(STUDY, costs, 1000, 600.0, 1)
    assert set(why) == left_out
    for too_much in why.values():
        assert too_much.why.startswith("a run needs about 5.7 GB") and too_much.lacks == "memory"


_LATE = fitting.TooMuch("20 epochs would take 2.1 h or more", "time", 15_000.0)


def test_what_takes_too_long_however_fast_the_machine_is_not_tried(monkeypatch) -> None:
    monkeypatch.setattr(fitting, "free_memory", lambda: 10**12)
    monkeypatch.setattr(fitting, "bf16_is_faster", lambda: False)
    costs = {"mae": Counted(100.0, Cost(1e7, 0.0), 128), "dino": Counted(100.0, Cost(2.5e10, 0.0), 128)}
    # Three runs of 20 epochs of 1,000 images, at 200e9 operations a second and core: 7,500 s.
    assert fitting.cannot(STUDY, costs, 1000, 14_000.0, 1) == {"dino": _LATE}
    assert fitting.cannot(STUDY, costs, 1000, 14_000.0, 2) == fitting.cannot(STUDY, costs, 1000, None, 1) == {}
    monkeypatch.setattr(fitting, "bf16_is_faster", lambda: True)  # and twice as many so
    assert fitting.cannot(STUDY, costs, 1000, 14_000.0, 1) == {}


def test_a_budget_without_room_for_pre_training_is_refused_before_anything_is_measured() -> None:
    late = {"mae": _LATE}
    nothing = replace(STUDY, starts=("scratch", "pixels"))
    with pytest.raises(
        UserError, match=r"^--verdict.budget: 20 s is too short .*: MAE alone is too much, 20 epochs"
    ) as e:
        opening._check_budget(nothing, late, 20.0)
    assert str(e.value).endswith("give more than 4.2 h, or leave the option out")
    for study, why, seconds in (
        (replace(STUDY, starts=("mae", "scratch")), {"dino": late["mae"]}, 20.0),  # another method fits
        (nothing, {"mae": fitting.TooMuch("a run needs about 5.7 GB, and 1 GB are free for each", "memory")}, 20.0),
        (nothing, late, None),
        (replace(nothing, given={"mae": ("run",)}), late, 20.0),
    ):
        opening._check_budget(study, why, seconds)


def test_what_was_not_measured_is_taken_to_be_rather_fast() -> None:
    costs = {"mae": Counted(9.0, Cost(1e7, 0.0), 128), "dino": Counted(9.0, Cost(4e7, 0.0), 64)}
    found = fitting.guesses(costs, {"mae": Pace(4000.0, 1.0, 1e7, 128.0)}, ["dino"])
    assert found == {"dino": Pace(1.5 * 1000.0, 1.0, 4e7, 64.0)}
    found = fitting.guesses(costs, {}, ["dino"])["dino"]
    assert found.images_per_second == pytest.approx(1.5 * fitting.best_rate() / 4e7)


def test_memory_that_is_counted_is_what_a_pass_keeps() -> None:
    study = replace(STUDY, starts=("mae", "lejepa@cnn", "scratch"), epochs={})
    found = counted(study, images_of(8), 8, cpu=True)
    assert set(found) == {"mae", "lejepa@cnn"}
    for one in found.values():
        assert one.cost is not None and one.cost.flops > 0 and one.cost.kept > 0 and one.batch == 128
    assert found["mae"].cost.weights > 4 * 4 * 200_000  # of 203,456 weights and the decoder's


def test_a_budget_shrinks_the_network_that_nobody_named(tmp_path: Path, monkeypatch) -> None:
    cfg = replace(STUDY.recipe, verdict=VerdictConfig())

    def chosen(seconds: float | None, **options: Any) -> ModelConfig:
        asked = replace(cfg, model=replace(cfg.model, **options))
        return fitting.fitted(asked, "mae", 4000, 32, Format(3, 8), seconds, 2, tmp_path).model

    assert chosen(None) == chosen(1e9) == cfg.model  # the preset's: vit_tiny
    assert [chosen(seconds).name for seconds in (1800.0, 60.0)] == ["vit_micro", "vit_micro"]
    assert chosen(1e5).name in ("vit_mini", None)
    assert chosen(1800.0, name="vit_small").name == "vit_small"
    assert chosen(1800.0, img_size=24) == replace(cfg.model, name="vit_micro", img_size=24)
    told = {"budget": 1800.0, "model": {"name": "vit_mini", "img_size": None}}
    (tmp_path / "plan.json").write_text(json.dumps(told))
    assert chosen(1800.0).name == "vit_mini"  # a plan that is there keeps its network, whatever the machine is now


def test_a_large_input_is_shrunk_before_the_network(tmp_path: Path) -> None:
    chosen = list[tuple[str | None, int | None]]()
    for seconds in (1e9, 1e7, 3e6):
        found = fitting.fitted(STUDY.recipe, "mae", 4000, 300, Format(3, 8), seconds, 2, tmp_path).model
        chosen.append((found.name, found.img_size))
    assert chosen[0] == (None, None)
    assert (None, 128) in chosen
    small = fitting.fitted(STUDY.recipe, "mae", 2562, 40, Format(3, 16), 1800.0, 2, tmp_path).model
    assert (small.name, small.img_size) == ("vit_micro", 32)  # 64 patches instead of 100


@pytest.mark.parametrize("start", ["scratch", "cnn"])
def test_a_split_of_the_pool_does_not_choose_the_baselines_labels(start: str) -> None:
    recipe = replace(STUDY.recipe, data=PoolConfig(path="images", split="train+unlabeled"))
    config = replace(STUDY, recipe=recipe).training(start, 20, 0, Candidate(1e-3, 0.05, 1.0, 1.0), Path("w"))[1]
    assert isinstance(config, SupervisedRecipe)
    assert config.data.path == "images"
    assert config.data.split is None
