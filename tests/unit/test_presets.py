"""Presets: what they come to, how one is chosen or named, and that naming one changes nothing else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from ssl_vit.configs import (
    AugmentConfig,
    FitConfig,
    GuardedConfig,
    ModelConfig,
    OptimConfig,
    ResolvedModel,
    networks,
    parse,
    presets,
)
from ssl_vit.configs.networks import FAMILIES, NETWORKS
from ssl_vit.configs.presets import PRESETS, TINY
from ssl_vit.configs.resolve import LEAST_STEPS
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.formats import Format
from ssl_vit.methods import METHODS, Facts, dino, mae, supervised
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.methods.supervised import FinetuneRecipe, SupervisedConfig, SupervisedRecipe
from ssl_vit.models.build import ModelFacts, check_shape, model_facts
from ssl_vit.script import all_presets
from ssl_vit.training.forecast import network_of, within_an_hour

ROOT = Path(__file__).resolve().parents[2]


def facts(name: str) -> ModelFacts:
    """Default sizes without building the model."""
    network = next(n for n in reversed(NETWORKS.values()) if n.timm_name == name)
    return ModelFacts(224, 16, network.width, network.depth, network.heads)


def modelled(side: int, preset: str | None = None, **given: object) -> ResolvedModel:
    model = ModelConfig(**given)  # pyright: ignore[reportArgumentType]
    return networks.resolve_model(model, side, facts(networks.wanted(model, side, preset)[0]), preset)


def of(images: int, side: int, **given: Any) -> Facts:
    """What options are resolved by: so many images, and the network for images of that size."""
    model = modelled(side, **given)
    return Facts(images, model, facts(model.name))


# side of the images: preset; model; input, patch, width, depth, heads, pool
MODELS = {
    8: ("digits", "vit_tiny_patch16_224", (8, 2, 64, 4, 4, "mean")),
    28: ("px32", "vit_tiny_patch16_224", (28, 4, 192, 12, 3, "cls")),
    32: ("px32", "vit_tiny_patch16_224", (32, 4, 192, 12, 3, "cls")),
    64: ("px64", "vit_tiny_patch16_224", (64, 8, 192, 12, 3, "cls")),
    96: ("px96", "vit_tiny_patch16_224", (96, 12, 192, 12, 3, "cls")),
    128: ("px128", "vit_small_patch16_224", (128, 16, 384, 12, 6, "cls")),
    160: ("px128", "vit_small_patch16_224", (128, 16, 384, 12, 6, "cls")),
    224: ("px224", "vit_small_patch16_224", (224, 16, 384, 12, 6, "cls")),
    500: ("px224", "vit_small_patch16_224", (224, 16, 384, 12, 6, "cls")),
}


@pytest.mark.parametrize("side", MODELS)
def test_the_network_of_every_size_of_images(side: int) -> None:
    name, timm_name, sizes = MODELS[side]
    found = modelled(side)
    assert presets.preset_for(None, found.img_size).name == name
    assert found.name == timm_name
    assert (found.img_size, found.patch_size, found.width, found.depth, found.heads, found.pool) == sizes


# crop of MAE, flip, mask ratio, norm_pix; decoder; (epochs, batch) of MAE for 20, 1,438, 50,000 and 1.28 M images
# base lr: MAE, from scratch, fine-tuning; on labels: crop, (policy, erasing), (mixup, cutmix) of 1,999 and 20,000,
# (epochs, batch)
PHOTOS = ((0.2, 1.0), True, 0.75, True)
LABELS = ((0.35, 1.0), ("randaugment", 0.25), (0.0, 0.0), (0.8, 1.0), (100.0, 64))
SMALL_LENGTHS = [(800.0, 8), (800.0, 256), (80.0, 256), (20.0, 256)]
LARGE_LENGTHS = [(800.0, 8), (800.0, 256), (100.0, 256), (100.0, 256)]
VALUES = {
    "digits": (
        ((1.0, 1.0), False, 0.5, False), (32, 2, 2), [(800.0, 8), (139.0, 128), (20.0, 128), (20.0, 128)],
        (3e-3, 4e-3, 2e-3), ((1.0, 1.0), ("none", 0.0), (0.0, 0.0), (0.0, 0.0), (100.0, 64)),
    ),
    "px32": (
        PHOTOS, (96, 4, 3), [(800.0, 8), (800.0, 256), (800.0, 256), (31.0, 256)], (1e-3, 1e-3, 1e-3),
        ((1.0, 1.0), *LABELS[1:4], (300.0, 64)),
    ),
    "px32-cpu": (PHOTOS, (96, 4, 3), SMALL_LENGTHS, (1e-3, 1e-3, 1e-3), LABELS),
    "px64": (PHOTOS, (96, 4, 3), SMALL_LENGTHS, (1e-3, 1e-3, 1e-3), LABELS),
    "px96": (PHOTOS, (96, 4, 3), SMALL_LENGTHS, (1e-3, 1e-3, 1e-3), LABELS),
    "px128": (PHOTOS, (192, 4, 6), LARGE_LENGTHS, (1e-3, 1e-3, 1e-3), LABELS),
    "px224": (PHOTOS, (192, 4, 6), LARGE_LENGTHS, (1e-3, 1e-3, 1e-3), LABELS),
}  # fmt: skip


def lasting(epochs: float, **changed: Any) -> SupervisedRecipe:
    """Training from scratch with a length of its own."""
    return replace(SupervisedRecipe(), fit=replace(SupervisedRecipe().fit, epochs=epochs), **changed)


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "digits"])
def test_training_that_sees_few_images_is_light_unless_asked(name: str) -> None:
    preset, light = PRESETS[name], ("none", 0.0, 0.0, 0.0, "pad")
    strong = ("randaugment", 0.25, 0.8, 1.0, "random_resized")
    long = (*strong[:-1], "pad") if name == "px32" else strong  # it pads from scratch, however long

    def found(recipe: SupervisedRecipe | FinetuneRecipe, images: int) -> tuple[object, ...]:
        resolve: Any = supervised.resolve if isinstance(recipe, SupervisedRecipe) else supervised.resolve_finetuning
        cfg = resolve(recipe, of(images, preset.input), preset)
        own, mixed = cfg.augment, cfg.supervised
        return own.policy, own.erasing, mixed.mixup, mixed.cutmix, own.crop

    for images, tuned, scratch in ((9_999, light, light), (10_000, strong, long)):  # of 100 epochs
        assert (found(FinetuneRecipe(), images), found(lasting(100.0), images)) == (tuned, scratch)
    steps = replace(lasting(1e-6).fit, min_steps=15_625, batch_size=64)  # a million images, however few there are
    assert found(replace(SupervisedRecipe(), fit=steps), 2000) == long
    assert found(replace(SupervisedRecipe(), fit=replace(steps, min_steps=15_624)), 2000) == light
    assert found(replace(SupervisedRecipe(), fit=replace(steps, min_steps=0, batch_size=2000)), 2000) == light
    asked = lasting(1.0, augment=AugmentConfig(policy="randaugment"), supervised=SupervisedConfig(mixup=0.3))
    assert found(asked, 2000) == ("randaugment", 0.0, 0.3, 0.0, "pad")
    for crop, scale in ((None, (0.5, 1.0)), ("random_resized", None)):
        cfg = supervised.resolve(lasting(1.0, augment=AugmentConfig(scale, crop)), of(2000, preset.input), preset)
        assert (cfg.augment.crop, cfg.augment.crop_scale) == ("random_resized", scale or (0.35, 1.0))
    of_files = lasting(1.0, data=GuardedConfig(crop_from="file"))
    assert supervised.resolve(of_files, of(2000, preset.input), preset).augment.crop == "random_resized"


@pytest.mark.parametrize("name", PRESETS)
def test_the_values_of_every_preset(name: str) -> None:
    views, decoder, lengths, rates, labelled = VALUES[name]
    preset = PRESETS[name]
    size = preset.input
    found = [mae.resolve(MAERecipe(), of(n, size), preset) for n in (20, 1438, 50_000, 1_281_167)]
    augment, own = found[0].augment, found[0].mae
    assert (augment.crop_scale, augment.flip, own.mask_ratio, own.norm_pix) == views
    assert (augment.policy, augment.erasing) == ("none", 0.0)
    assert (own.decoder_width, own.decoder_depth, own.decoder_heads) == decoder
    assert [(cfg.fit.epochs, cfg.fit.batch_size) for cfg in found] == lengths
    few = supervised.resolve(lasting(1000.0), of(1999, size), preset)
    many = supervised.resolve(SupervisedRecipe(), of(20_000, size), preset)
    tuned = supervised.resolve_finetuning(FinetuneRecipe(), of(20_000, size), preset)
    assert (found[0].optim.base_lr, many.optim.base_lr, tuned.optim.base_lr) == rates
    for cfg in (many, tuned):
        augment, mixed = cfg.augment, cfg.supervised
        assert (
            augment.crop_scale, (augment.policy, augment.erasing),
            (few.supervised.mixup, few.supervised.cutmix), (mixed.mixup, mixed.cutmix),
            (cfg.fit.epochs, cfg.fit.batch_size),
        ) == (labelled if cfg is many or name != "px32" else LABELS)  # fmt: skip
        assert augment.flip is preset.flip


@pytest.mark.parametrize(
    ("width", "decoder", "rate"),
    [
        (48, (32, 2, 2), 1e-3),
        (64, (32, 2, 2), 1e-3),
        (128, (64, 2, 2), 1e-3),
        (192, (96, 4, 3), 1e-3),
        (384, (192, 4, 6), 1e-3),
        (768, (512, 8, 16), 1.5e-4),
        (1024, (512, 8, 16), 1.5e-4),
        (1280, (512, 8, 16), 1.5e-4),
    ],
)
def test_decoder_and_rate_of_every_network(width: int, decoder: tuple[int, int, int], rate: float) -> None:
    photos, preset = of(1438, 224, width=width), PRESETS["px224"]
    found = mae.resolve(MAERecipe(), photos, preset)
    own = found.mae
    assert (own.decoder_width, own.decoder_depth, own.decoder_heads) == decoder
    assert found.optim.base_lr == rate
    tuned, given = FinetuneRecipe(), FinetuneRecipe(optim=OptimConfig(base_lr=5e-4))
    for cfg in (
        supervised.resolve(SupervisedRecipe(), photos, preset),
        supervised.resolve_finetuning(tuned, photos, preset),
    ):
        assert cfg.optim.base_lr == (4e-3 if width < 192 else 1e-3)
    digits = supervised.resolve_finetuning(tuned, of(1438, 8, width=width), PRESETS["digits"])
    assert digits.optim.base_lr == 2e-3  # measured on digits
    assert supervised.resolve_finetuning(given, photos, preset).optim.base_lr == 5e-4


def test_every_side_belongs_to_one_preset_and_every_preset_to_its_own_input() -> None:
    least = 1
    for preset in (p for p in PRESETS.values() if not p.cpu):
        assert preset.sides[0] == least
        assert presets.for_side(preset.sides[0]) == presets.for_side(preset.sides[1] or 10**6) == preset
        assert presets.for_side(preset.input) == preset  # what resolve relies on where one is named
        least = (preset.sides[1] or 0) + 1
    assert TINY == 16


def test_a_cpu_has_presets_of_its_own_for_the_same_sides() -> None:
    for name, preset in PRESETS.items():
        usual = PRESETS[name.removesuffix("-cpu")]
        assert preset.cpu == (preset is not usual)
        assert (preset.sides, preset.input, preset.patches, preset.network) == (
            usual.sides, usual.input, usual.patches, usual.network
        )  # fmt: skip
        for side in (preset.sides[0], preset.input):
            own = presets.for_side(side, cpu=True)
            assert own == PRESETS.get(f"{usual.name}-cpu", usual)
            assert presets.for_side(side) == usual
        assert presets.preset_for(name, 8, cpu=True) == preset  # a name wins


def test_long_training_from_scratch_is_that_of_gpus_alone() -> None:
    photos = of(50_000, 32)
    for name, long in (("px32", True), ("px32-cpu", False)):
        cfg = supervised.resolve(SupervisedRecipe(), photos, PRESETS[name])
        assert (cfg.fit.epochs, cfg.supervised.ema_decay) == ((300, 0.9995) if long else (100, 0.999))
        assert (cfg.augment.crop, cfg.supervised.pool) == (
            ("pad", "mean_prenorm") if long else ("random_resized", "cls")  # five million images
        )
        tuned = supervised.resolve_finetuning(FinetuneRecipe(), photos, PRESETS[name])
        assert (tuned.fit.epochs, tuned.augment.crop, tuned.supervised.ema_decay) == (100, "random_resized", 0.999)
    given = SupervisedRecipe(
        augment=AugmentConfig(crop_scale=(0.5, 1.0)), supervised=SupervisedConfig(pool="cls", ema_decay=0.0)
    )
    cfg = supervised.resolve(given, photos, PRESETS["px32"])
    assert (cfg.augment.crop, cfg.augment.crop_scale) == ("random_resized", (0.5, 1.0))
    assert (cfg.supervised.pool, cfg.supervised.ema_decay) == ("cls", 0.0)


def test_lejepa_has_a_network_of_its_own_on_a_cpu() -> None:
    method = METHODS["lejepa"]
    facts, preset = network_of(method, method.recipe(), 50_000, 32, cpu=True)
    assert (preset.name, facts.model.name, facts.model.img_size) == ("px32-cpu", "resnet_small_images", 32)
    crops = method.resolve(method.recipe(), facts, preset).crops
    assert (crops.global_size, crops.local_crops) == (24, 0)
    for asked, cpu in (
        (method.recipe(), False),
        (replace(method.recipe(), preset="px32"), True),
        (replace(method.recipe(), model=ModelConfig("vit_mini")), True),
        (replace(method.recipe(), model=ModelConfig(width=96)), True),
    ):
        assert network_of(method, asked, 50_000, 32, cpu=cpu)[0].model.name == "vit_tiny_patch16_224"
    fitted = within_an_hour(method, method.recipe(), 50_000, 32, Format(3, 8))
    assert fitted.asked.model.name is None  # only the length is cut
    assert "resnet_mini for 24 epochs" in fitted.note


@pytest.mark.parametrize("side", [8, 30, 64, 100, 300])
@pytest.mark.parametrize("name", PRESETS)
def test_a_named_preset_fits_images_of_every_size(name: str, side: int) -> None:
    found = modelled(side, name)
    check_shape(found)
    assert presets.preset_for(name, found.img_size or 0).name == name
    natural = presets.preset_for(None, side).name == name
    assert found == (modelled(side) if natural else modelled(PRESETS[name].input))


def test_what_is_given_wins_over_a_named_preset() -> None:
    found = modelled(300, "px96", img_size=64, patch_size=16, width=128, pool="mean")
    assert (found.img_size, found.patch_size, found.width, found.heads, found.pool) == (64, 16, 128, 2, "mean")
    named = modelled(300, "px96", name="vit_base_patch16_224")
    assert (named.img_size, named.patch_size, named.width) == (96, 12, 768)


@pytest.mark.parametrize("name", NETWORKS)
def test_short_names_of_networks_leave_sizes_to_the_images(name: str) -> None:
    found, network = modelled(32, name=name), NETWORKS[name]
    assert (found.img_size, found.patch_size) == (32, 4)
    assert (found.name, found.width, found.depth) == (network.timm_name, network.width, network.depth)
    assert modelled(32, name=network.timm_name).img_size == 224  # a timm model brings its own


@pytest.mark.parametrize("name", ["vit_tiny", "vit_small", "vit_base", "vit_large", "vit_huge"])
def test_networks_are_timms(name: str) -> None:
    network = NETWORKS[name]
    timm = model_facts(network.timm_name)
    assert (timm.width, timm.depth, timm.heads) == (network.width, network.depth, network.heads)


def test_heads_divide_any_width() -> None:
    assert [modelled(8, width=w).heads for w in (16, 64, 100)] == [1, 4, 5]
    assert [modelled(32, width=w).heads for w in (192, 200)] == [3, 2]


@pytest.mark.parametrize("words", [["--preset"], ["--preset", "list"], ["--preset=list"], ["--preset", "--seed", "3"]])
@pytest.mark.parametrize("recipe", [MAERecipe, SupervisedRecipe])
def test_the_table(recipe: type, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(recipe, "", words, all_presets)
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 120
    words_only = " ".join(text.split())
    for preset in PRESETS.values():
        assert preset.source in words_only
        assert re.search(rf"^{preset.name} .* {preset.network} ", text, re.MULTILINE)
        for own in (mae.PRESETS[preset.name], dino.PRESETS[preset.name]):
            assert own.source in words_only
            assert own.expected in words_only
            assert re.search(rf"^{preset.name} .* {own.batch} ", text, re.MULTILINE)


def test_an_unknown_preset_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(MAERecipe, "", ["--preset", "digit"])
    message = capsys.readouterr().err
    assert stopped.value.code == 2
    assert message.startswith("error: --preset digit is none of digits, px32")
    assert "did you mean digits?" in message
    assert message.count("\n") == 1
    with pytest.raises(UserError):
        presets.named("px33")


def test_the_table_needs_no_torch() -> None:
    code = (
        "import runpy, sys; sys.argv = ['recipes/mae.py', '--preset']\n"
        "try: runpy.run_path('recipes/mae.py', run_name='__main__')\n"
        "except SystemExit as stopped: assert stopped.code == 0\n"
        "assert 'torch' not in sys.modules and 'timm' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "px224" in done.stdout


def test_help_names_every_preset_and_network(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(MAERecipe, "", ["--help"])
    text = capsys.readouterr().out
    assert all(re.search(rf"\b{name}\b", text) for name in [*PRESETS, *NETWORKS])
    assert "which --preset lists" in " ".join(text.split())
    assert all(re.search(rf"\b{name}\b", all_presets()) for name in FAMILIES)


def test_a_preset_may_stand_in_a_config_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps({"preset": "px96"}))
    assert parse(MAERecipe, "", ["--config", str(file)]).preset == "px96"
    assert parse(MAERecipe, "", ["--config", str(file), "--preset", "px64"]).preset == "px64"


@pytest.mark.parametrize(
    ("images", "batch"), [(1, 64), (50_000, 64), (131_071, 64), (131_072, 128), (1_281_167, 1024), (14_000_000, 1024)]
)
def test_batches_on_labels_grow_with_the_images(images: int, batch: int) -> None:
    for side, width in ((224, 384), (32, 64)):
        facts, preset = of(images, side, width=width), presets.for_side(side)
        for cfg in (
            supervised.resolve(SupervisedRecipe(), facts, preset),
            supervised.resolve_finetuning(FinetuneRecipe(), facts, preset),
        ):
            assert cfg.fit.batch_size == batch
            assert cfg.optim.base_lr * batch / 256 <= 4e-3 * (1 + 1e-9)
    given = SupervisedRecipe(fit=FitConfig(batch_size=256))
    assert supervised.resolve(given, of(images, 224), PRESETS["px224"]).fit.batch_size == 256


def test_few_labels_have_a_floor_of_steps_unless_a_length_is_asked_for() -> None:
    few, preset = of(50, 32), PRESETS["px32"]

    def steps(cfg: FitConfig) -> int:
        tuned = supervised.resolve_finetuning(FinetuneRecipe(fit=cfg), few, preset).fit.min_steps
        assert supervised.resolve(SupervisedRecipe(fit=cfg), few, preset).fit.min_steps == tuned
        return tuned

    assert steps(FitConfig()) == LEAST_STEPS == 1000
    assert steps(FitConfig(epochs=3.0)) == 0
    assert steps(FitConfig(epochs=3.0, min_steps=70)) == 70
    assert mae.resolve(MAERecipe(), few, preset).fit.min_steps == 0


@pytest.mark.parametrize("name", list(METHODS))
def test_numbers_that_presets_quote_are_those_of_the_results(name: str) -> None:
    presets: dict[str, Any] = getattr(import_module(f"ssl_vit.methods.{name}"), "PRESETS", {})
    for preset in presets.values():
        files = re.findall(r"benchmarks/results/\w+\.md", preset.expected)
        measured = "".join((ROOT / file).read_text(encoding="utf-8") for file in files)
        quoted = re.findall(r"\b\d+\.\d\b(?! M)", preset.expected) if files else []
        assert [number for number in quoted if number not in measured] == [], preset.expected
