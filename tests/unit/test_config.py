"""Command line, YAML and the values that are filled in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ssl_vit.configs import (
    AugmentConfig,
    CropsConfig,
    FitConfig,
    KNNConfig,
    KNNRecipe,
    LinearRecipe,
    ModelConfig,
    OptimConfig,
    ProbeOptimConfig,
    ResolvedAugment,
    ResolvedModel,
    from_dict,
    networks,
    parse,
    resolve,
    to_dict,
    to_yaml,
)
from ssl_vit.configs.data import check_crops
from ssl_vit.configs.facts import check_ranges
from ssl_vit.configs.presets import PRESETS
from ssl_vit.core.errors import UserError
from ssl_vit.methods import Facts, known_recipes, mae
from ssl_vit.methods.dino import DINORecipe
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.methods.supervised import (
    FinetuneRecipe,
    ResolvedSupervised,
    SupervisedConfig,
    SupervisedRecipe,
    resolve_supervised,
)
from ssl_vit.models.build import ModelFacts
from ssl_vit.verdict.options import verdict_recipe

RECIPES = [*known_recipes(), verdict_recipe()]
SMALL = ModelFacts(224, 16, 384, 12, 6)
TINY = ModelFacts(224, 16, 192, 12, 3)


@pytest.mark.parametrize("recipe", RECIPES)
def test_defaults_survive_yaml(recipe: type, tmp_path: Path) -> None:
    config = recipe()
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(config))
    assert parse(recipe, "", ["--config", str(file)]) == config
    assert from_dict(recipe, to_dict(config)) == config


def test_changed_values_survive_yaml_and_the_command_line_wins(tmp_path: Path) -> None:
    words = ["--data.path", "my images", "--mae.mask_ratio", "0.6", "--optim.betas", "[0.8,0.9]", "--optim.lr", "1e-2"]
    config = parse(MAERecipe, "", [*words, "--augment.crop_scale", "[0.5,1.0]", "--augment.flip", "false"])
    assert (config.data.path, config.mae.mask_ratio, config.optim.lr) == ("my images", 0.6, 0.01)
    assert config.optim.betas == (0.8, 0.9)
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(config))
    assert parse(MAERecipe, "", ["--config", str(file)]) == config
    assert parse(MAERecipe, "", ["--config", str(file), "--seed", "7"]).seed == 7


def test_every_recipe_keeps_its_own_defaults() -> None:
    assert parse(MAERecipe, "", []).optim.betas == (0.9, 0.95)
    assert parse(SupervisedRecipe, "", []).fit.clip_grad == SupervisedRecipe().fit.clip_grad == 1.0
    assert parse(FinetuneRecipe, "", ["--fit.epochs", "3"]).optim.layer_decay == FinetuneRecipe().optim.layer_decay


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--mae.mask_rato", "0.5"], "did you mean --mae.mask_ratio"),
        (["--data.pth=x"], "did you mean --data.path"),
        (["--fit.batchsize", "3"], "did you mean --fit.batch_size"),
        (["--sed", "3"], "did you mean --seed"),
        (["--fit.epochs", "many"], "--fit.epochs: expected a number, got many"),
        (["--model.pool", "max"], "--model.pool: expected one of cls, mean, got max"),
        (["--fit.batch_size", "1.5"], "--fit.batch_size: expected a whole number"),
        (["--fit.micro_batch", "some"], "--fit.micro_batch: expected a whole number or auto, got some"),
        (["--data.path"], "--data.path needs a value"),
        (["images", "others"], "unexpected word 'others': if it is what is judged on, write"),
        (["images", "table.csv"], "--data.labels table.csv"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--mae.mask", "0.5"], "unknown option --mae.mask"),  # no abbreviations
    ],
)
def test_mistakes_are_one_line(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(MAERecipe, "", words)
    message = capsys.readouterr().err
    assert stopped.value.code == 2
    assert expected in message
    assert message.startswith("error: ")
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [("mae:\n  mask_rato: 0.5\n", "did you mean --mae.mask_ratio"), ("a: [\n", "config"), ("fit: 3\n", "fit")],
)
def test_mistakes_in_yaml_are_one_line(
    text: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(SystemExit):
        parse(MAERecipe, "", ["--config", str(file)])
    message = capsys.readouterr().err
    assert expected in message
    assert message.count("\n") == 1


@pytest.mark.parametrize("recipe", RECIPES)
def test_help_documents_every_field(recipe: type, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(recipe, "What it does.", ["--help"])
    text = capsys.readouterr().out

    def walk(values: dict[str, object], prefix: str = "") -> list[str]:
        names: list[str] = []
        for key, value in values.items():
            names += walk(value, f"{prefix}{key}.") if isinstance(value, dict) else [prefix + key]
        return names

    options = text.split("options:")[1]
    for name in walk(to_dict(recipe())):
        assert f"--{name} " in options, name
        after = options.split(f"--{name} ", 1)[1].split("\n  --", 1)[0]
        described = after.split("(type:")[0]
        assert len(described.split()) >= 4, f"{name} has no description: {described!r}"


@pytest.mark.parametrize(
    ("given", "side", "shape", "expected"),
    [
        (ModelConfig(), 8, TINY, (8, 2, 64, 4, 4, "mean")),
        (ModelConfig(), 32, TINY, (32, 4, 192, 12, 3, "cls")),
        (ModelConfig(), 28, TINY, (28, 4, 192, 12, 3, "cls")),
        (ModelConfig(), 40, TINY, (40, 4, 192, 12, 3, "cls")),
        (ModelConfig(), 96, TINY, (96, 12, 192, 12, 3, "cls")),
        (ModelConfig(), 300, SMALL, (224, 16, 384, 12, 6, "cls")),
        (ModelConfig(), 160, SMALL, (128, 16, 384, 12, 6, "cls")),
        (ModelConfig("vit_small_patch16_224"), 32, SMALL, (224, 16, 384, 12, 6, "cls")),
        (ModelConfig("vit_small_patch16_224", 32, width=128), 32, SMALL, (32, 4, 128, 12, 2, "cls")),
        (ModelConfig(patch_size=3), 9, TINY, (9, 3, 64, 4, 4, "mean")),
    ],
)
def test_model_sizes_from_the_images(
    given: ModelConfig, side: int, shape: ModelFacts, expected: tuple[object, ...]
) -> None:
    found = networks.resolve_model(given, side, shape)
    assert (found.img_size, found.patch_size, found.width, found.depth, found.heads, found.pool) == expected


@pytest.mark.parametrize("side", range(1, 400))
def test_chosen_sizes_always_divide(side: int) -> None:
    for given in (ModelConfig(), ModelConfig(img_size=side * 2), ModelConfig(patch_size=4)):
        found = networks.resolve_model(given, side, SMALL if side > 96 else TINY)
        assert found.img_size is not None
        assert found.patch_size is not None
        if given.img_size is None:
            assert found.img_size % found.patch_size == 0
            assert found.img_size // found.patch_size >= 2


def augmented(given: AugmentConfig, name: str, *, labelled: bool) -> ResolvedAugment:
    """As MAE and training on labels have it with that preset."""
    preset = PRESETS[name]
    crop = preset.labelled_crop if labelled else mae.PRESETS[name].crop
    return resolve.resolve_augment(given, preset, crop, labelled=labelled)


def test_small_images_are_not_varied_and_large_ones_are() -> None:
    digits = augmented(AugmentConfig(), "digits", labelled=False)
    assert (digits.crop_scale, digits.flip, digits.policy) == ((1.0, 1.0), False, "none")
    photos = augmented(AugmentConfig(), "px224", labelled=False)
    assert (photos.crop_scale, photos.flip, photos.policy, photos.erasing) == ((0.2, 1.0), True, "none", 0.0)
    labelled = augmented(AugmentConfig(flip=False), "px224", labelled=True)
    assert (labelled.crop_scale, labelled.flip, labelled.policy) == ((0.35, 1.0), False, "randaugment")
    assert (labelled.magnitude, labelled.erasing) == (9.0, 0.25)
    tiny = augmented(AugmentConfig(), "digits", labelled=True)
    assert (tiny.policy, tiny.erasing) == ("none", 0.0)


def test_erasing_needs_labels() -> None:
    with pytest.raises(UserError, match=r"--augment\.erasing"):
        augmented(AugmentConfig(erasing=0.25), "px224", labelled=False)


@pytest.mark.parametrize("scale", [(0.0, 1.0), (0.8, 0.2), (0.5, 1.5)])
def test_impossible_crops(scale: tuple[float, float]) -> None:
    with pytest.raises(UserError, match=r"--augment\.crop_scale"):
        augmented(AugmentConfig(crop_scale=scale), "px32", labelled=False)


def test_shapes_of_crops_the_wrong_way_round() -> None:
    with pytest.raises(
        UserError, match=r"--augment\.crop_ratio \[1.5, 0.7\] must be two positive numbers, least first"
    ):
        augmented(AugmentConfig(crop_ratio=(1.5, 0.7)), "px32", labelled=False)


@pytest.mark.parametrize("labelled", [False, True])
def test_what_nothing_reads_is_refused(labelled: bool) -> None:
    with pytest.raises(UserError, match=r"--augment\.magnitude 3 is RandAugment's, and --augment\.policy is none here"):
        augmented(AugmentConfig(magnitude=3.0, policy="none"), "px32", labelled=labelled)
    with pytest.raises(UserError, match=r"--augment\.crop_ratio \[0\.5, 2\.0\] is of random boxes, and none are cut"):
        augmented(AugmentConfig(crop_ratio=(0.5, 2.0), crop="pad"), "px32", labelled=labelled)
    read = AugmentConfig(magnitude=3.0, policy="randaugment", crop_ratio=(0.5, 2.0), crop_scale=(0.2, 1.0))
    assert augmented(read, "px32", labelled=labelled).magnitude == 3.0


def test_padded_crops_have_no_areas() -> None:
    padded = AugmentConfig(crop="pad")
    for labelled in (False, True):
        assert augmented(padded, "px32", labelled=labelled).crop_scale == (1.0, 1.0)
    again = augmented(padded, "px32", labelled=True)
    assert augmented(again, "px32", labelled=True) == again
    with pytest.raises(UserError, match=r"--augment\.crop_scale .* --augment\.crop pad"):
        augmented(AugmentConfig(crop="pad", crop_scale=(0.2, 1.0)), "px32", labelled=False)


def test_decoder_of_vit_b_is_the_papers() -> None:
    model = ResolvedModel("vit_base_patch16_224", 224, 16, 768, 12, 12, "sincos", "cls")
    found = mae.resolve(MAERecipe(), Facts(5000, model, SMALL), PRESETS["px224"]).mae
    assert (found.decoder_width, found.decoder_depth, found.decoder_heads) == (512, 8, 16)
    assert (found.mask_ratio, found.norm_pix) == (0.75, True)


def test_fine_tuning_reads_the_mean_before_the_norm_as_mae_does() -> None:
    def found(labels: int, pool: Any = "cls", kind: str = "class") -> ResolvedSupervised:
        model = ResolvedModel("vit_small_patch16_224", 224, 16, 384, 12, 6, "sincos", pool)
        return resolve_supervised(SupervisedConfig(), Facts(labels, model, SMALL, kind), PRESETS["px224"])

    assert found(5000, "mean").pool == "mean_prenorm"
    few = found(100)
    assert (few.pool, few.mixup, few.cutmix) == ("cls", 0.0, 0.0)
    numbers = found(5000, kind="regression")
    assert (numbers.mixup, numbers.cutmix) == (0.0, 0.0)
    many = found(5000)
    assert (many.mixup, many.cutmix) == (0.8, 1.0)


@pytest.mark.parametrize("recipe", RECIPES)
def test_defaults_are_in_range(recipe: type) -> None:
    check_ranges(recipe())


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (MAERecipe(fit=FitConfig(batch_size=0)), "--fit.batch_size 0 must be at least 1"),
        (MAERecipe(fit=FitConfig(epochs=0.0)), "--fit.epochs 0 must be positive"),
        (MAERecipe(optim=OptimConfig(lr=float("nan"))), "--optim.lr nan must be positive"),
        (LinearRecipe(optim=ProbeOptimConfig(lr=0.0)), "--optim.lr 0 must be positive"),
        (
            FinetuneRecipe(optim=OptimConfig(layer_decay=1.5)),
            "--optim.layer_decay 1.5 must be at least 1e-06 and at most 1",
        ),
        (MAERecipe(seed=2**32), "--seed 4294967296 must be at least 0 and at most 4294967295"),
        (KNNRecipe(knn=KNNConfig(also=(5, 0))), "--knn.also 0 must be at least 1"),
        (KNNRecipe(knn=KNNConfig(temperature=0.001)), "--knn.temperature 0.001 must be at least 0.02"),
        (DINORecipe(crops=CropsConfig(local_crops=-1)), "--crops.local_crops -1 must be at least 0"),
        (DINORecipe(crops=CropsConfig(local_size=0)), "--crops.local_size 0 must be at least 1"),
        (
            DINORecipe(crops=CropsConfig(global_scale=(0.5, 1.5))),
            "--crops.global_scale 1.5 must be at least 1e-06 and at most 1",
        ),
        (DINORecipe(crops=CropsConfig(jitter=-0.1)), "--crops.jitter -0.1 must be at least 0 and at most 5"),
        (DINORecipe(crops=CropsConfig(blur=(1.0, 0.1, 2.0))), "--crops.blur 2 must be at least 0 and at most 1"),
        (
            DINORecipe(crops=CropsConfig(blur_sigma=(0.0, 2.0))),
            "--crops.blur_sigma 0 must be at least 0.001 and at most 100",
        ),
    ],
)
def test_numbers_out_of_range(config: object, words: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(words)}$"):
        check_ranges(config)


def test_crops_default_to_what_a_preset_fills_or_the_papers() -> None:
    crops = CropsConfig()
    check_crops(crops)
    check_ranges(DINORecipe(crops=crops))
    assert (crops.ratio, crops.jitter_chance, crops.grey) == ((3 / 4, 4 / 3), 0.8, 0.2)


@pytest.mark.parametrize("name", ["global_scale", "local_scale", "ratio", "blur_sigma"])
def test_crop_ranges_the_wrong_way_round(name: str) -> None:
    with pytest.raises(UserError, match=rf"--crops\.{name} \[1\.0, 0\.5\] must be two positive numbers, least first"):
        check_crops(CropsConfig(**{name: (1.0, 0.5)}))
