"""What every entry of the table of methods promises, and that a new one is found everywhere by its entry alone."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import pytest
import ssl_vit
import torch
import yaml
from ssl_vit.configs import (
    AugmentConfig,
    FitConfig,
    ModelConfig,
    PretrainingRecipe,
    ResolvedAugment,
    ResolvedPretraining,
    RunConfig,
    from_dict,
    networks,
    parse,
    resolve,
    to_dict,
    to_yaml,
)
from ssl_vit.configs.networks import NETWORKS
from ssl_vit.configs.presets import PRESETS, Preset
from ssl_vit.configs.settled import OPEN, Resolved, settle
from ssl_vit.core.errors import UserError
from ssl_vit.data.loading.batch import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.exports.timm_folder import load_backbone
from ssl_vit.methods import METHODS, Facts, Look, Method, method_named, method_of
from ssl_vit.methods.method import MethodPreset, imported, settle_recipe
from ssl_vit.methods.starts import starts
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.build import ModelFacts
from ssl_vit.objectives.base import Built, Objective, StepOutput
from ssl_vit.report.look import looks, palette
from ssl_vit.script import all_presets
from ssl_vit.training.pretraining import pretrain
from ssl_vit.verdict.estimate import Pace, estimate
from ssl_vit.verdict.options import methods_of, verdict_recipe
from ssl_vit.views.training import train_images
from torch import Tensor, nn

from made_study import STUDY


def facts_for(preset: Preset, method: Method) -> Facts:
    """The preset's own network for images of its size."""
    network = NETWORKS[preset.network]
    shape = ModelFacts(224, 16, network.width, network.depth, network.heads)
    model = networks.resolve_model(ModelConfig(), preset.input, shape, preset.name, method.positions)
    return Facts(5000, model, shape)


def help_of(recipe: type, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        parse(recipe, "", ["--help"])
    return capsys.readouterr().out


@pytest.mark.parametrize("name", METHODS)
def test_the_recipe_reads_its_own_defaults(name: str) -> None:
    recipe = METHODS[name].recipe
    assert METHODS[name].name == name
    assert parse(recipe, "", []) == recipe()


@pytest.mark.parametrize("preset", PRESETS.values(), ids=list(PRESETS))
@pytest.mark.parametrize("name", METHODS)
def test_every_preset_leaves_nothing_open_and_config_yaml_repeats_the_run(name: str, preset: Preset) -> None:
    method = METHODS[name]
    facts = facts_for(preset, method)
    found = method.resolve(method.recipe(), facts, preset)
    assert isinstance(found, (method.recipe, ResolvedPretraining))
    assert found.preset == preset.name
    again = from_dict(method.recipe, yaml.safe_load(to_yaml(found)))
    assert to_dict(again) == to_dict(found)
    assert method.resolve(again, facts, preset) == found


@pytest.mark.parametrize("name", METHODS)
def test_what_an_entry_names_is_there(name: str) -> None:
    method = METHODS[name]
    assert callable(imported(method.build))
    assert not method.picture or callable(imported(method.picture))
    assert (Path(ssl_vit.__file__).parents[1] / method.script).is_file()
    assert method_named(name) is method
    for told in ({"method": name}, {"objective": method.title}, {"objective": f"{method.title}, and more"}):
        assert method_of(told) is method


def test_no_two_starts_look_alike() -> None:
    drawn = looks(starts())
    for part in ("light", "dark", "marker"):
        assert len({getattr(look, part) for look in drawn.values()}) == len(drawn), part


@pytest.mark.parametrize("name", METHODS)
def test_options_stand_in_help_in_the_verdict_and_in_the_presets(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    method = METHODS[name]
    own = [f"{name}.{option.name}" for option in fields(getattr(method.recipe(), name))]
    for recipe in (method.recipe, verdict_recipe()):
        text = help_of(recipe, capsys)
        assert [option for option in own if f"--{option} " not in text] == []
    usual = getattr(verdict_recipe()(), name)
    assert (usual.optim, usual.fit) == (method.recipe().optim, method.recipe().fit)
    assert method.presets() in all_presets()
    assert max(map(len, method.presets().splitlines())) <= 120


def test_an_unknown_method_lists_the_table() -> None:
    with pytest.raises(UserError, match=f"there is no method {next(iter(METHODS))}x; methods are .*did you mean"):
        method_named(f"{next(iter(METHODS))}x")
    with pytest.raises(UserError, match=f"by random weights, not by one of {', '.join(METHODS)}"):
        method_of({"objective": "random weights"})


# A method that only this test knows: it learns how bright the quarters of an image are.


@dataclass(frozen=True)
class ToyConfig:
    """Brightness of parts."""

    parts: int | None = None
    """Parts along each side; default: 2, for larger images 4."""


@dataclass(frozen=True)
class ResolvedToy(ToyConfig, Resolved):
    """The same without open values."""

    parts: int = OPEN


@dataclass(frozen=True)
class ToyRecipe(PretrainingRecipe):
    """Options of the toy."""

    augment: AugmentConfig = field(default_factory=AugmentConfig)
    toy: ToyConfig = field(default_factory=ToyConfig)


@dataclass(frozen=True)
class ResolvedToyRecipe(ResolvedPretraining, ToyRecipe):
    """The same without open values."""

    augment: ResolvedAugment = OPEN
    toy: ResolvedToy = OPEN


def resolve_toy(cfg: ToyRecipe, facts: Facts, preset: Preset) -> ResolvedToyRecipe:
    own = MethodPreset(source="made up", images=10_000, epochs=(1, 10), batch=64)
    return settle_recipe(
        ResolvedToyRecipe, cfg, facts, preset, own,
        toy=settle(ResolvedToy, cfg.toy, parts=cfg.toy.parts or (2 if facts.model.img_size <= 16 else 4)),
        augment=resolve.resolve_augment(cfg.augment, preset, (1.0, 1.0), labelled=False),
    )  # fmt: skip


class Toy(Objective):
    """Mean squared error of the brightness of an image's parts."""

    def __init__(self, backbone: Backbone, parts: int) -> None:
        super().__init__()
        self.backbone, self.parts = backbone, parts
        self.head = nn.Linear(backbone.embed_dim, parts**2)

    def forward(self, inputs: dict[str, Tensor]) -> StepOutput:
        images = inputs["images"]
        wanted = nn.functional.adaptive_avg_pool2d(images.mean(1, keepdim=True), self.parts).flatten(1)
        found = self.head(self.backbone.forward_pooled(images, pool="mean"))
        return StepOutput((found - wanted).square().mean(), {})

    def exported(self) -> Backbone:
        return self.backbone


def build(cfg: ResolvedToyRecipe, backbone: Backbone, scale: PixelScale, dtype: torch.dtype) -> Built:
    """Objective and view of one run."""

    def view(batch: Batch, seed: int) -> dict[str, Tensor]:
        return {"images": train_images(batch, seed, scale, cfg.augment, cfg.model.img_size, dtype)}

    return Built(Toy(backbone, cfg.toy.parts), view, f"{cfg.toy.parts**2} parts")


TOY = Method(
    name="toy", title="Toy", paper="nobody", recipe=ToyRecipe, needs="pooled", resolve=resolve_toy,
    presets=lambda: "The toy's part, of which there is none.", build=f"{__name__}:build",
    look=Look("#123456", "#abcdef", "d", (1.0, 9.0)),
)  # fmt: skip


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Method]:
    monkeypatch.setitem(METHODS, "toy", TOY)
    yield TOY


def test_a_new_method_is_a_start_of_verdicts_and_reports(toy: Method) -> None:
    assert list(starts())[: len(METHODS)] == list(METHODS)
    assert starts()["toy"].made and starts()["toy"].pretrained
    assert methods_of("toy") == ("toy", "scratch")
    assert "toy" not in methods_of(None)  # it takes part where it is asked for
    assert looks(["toy"])["toy"].light == palette()["toy"].light == "#123456"
    assert method_of({"objective": "Toy"}) is toy


def test_a_new_method_without_a_look_gets_one_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "toy", replace(TOY, look=None))
    drawn = looks(starts())
    assert len({look.light for look in drawn.values()}) == len(drawn)
    assert drawn["toy"] in palette().values()


def test_options_and_presets_of_a_new_method_are_found(toy: Method) -> None:
    cfg = parse(verdict_recipe(), "", ["--toy.parts", "3", "--toy.optim.base_lr", "2e-3", "--toy.fit.epochs", "7"])
    asked = cfg.of(toy)
    assert isinstance(asked, ToyRecipe)
    assert (asked.toy.parts, asked.optim.base_lr, asked.fit.epochs) == (3, 2e-3, 7.0)
    assert "The toy's part" in all_presets()


def test_the_work_of_a_new_method_is_planned(toy: Method) -> None:
    study = replace(STUDY, recipe=verdict_recipe()(seed=5), starts=("toy", "scratch"), epochs={"toy": 10.0})
    paces = {"toy": Pace(1000.0, 1.0, 3e7, 64.0), "scratch": Pace(2000.0, 0.4, 2e7, 64.0)}
    lines = {line.what: line for line in estimate(study, paces, 1000, {})}
    assert lines["Toy: pre-training"].units == 3
    assert lines["Toy: pre-training"].seconds == pytest.approx(10 * 1000 / 1000 + 1)
    assert {"Toy, fine-tuned", "Toy, fine-tuned: trials", "Toy: k-NN and linear probe"} <= set(lines)
    assert [str(run) for run in study.runs("toy")] == [f"v/runs/toy-{k}" for k in range(3)]
    config = study.pretraining("toy", 1)
    assert isinstance(config, ToyRecipe)
    assert (config.seed, config.fit.epochs, config.run.dir) == (6, 10.0, "v/runs/toy-1")


def test_a_new_method_is_trained_and_exported(toy: Method, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, fit = ModelConfig(width=16, depth=1, heads=2), FitConfig(epochs=0.1, batch_size=32, log_every=1)
    run = pretrain(toy, ToyRecipe(run=RunConfig(str(tmp_path / "r")), model=model, fit=fit))
    steps = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == [1, 2, 3, 4, 5]
    assert steps[-1]["loss"] < steps[0]["loss"]
    told = yaml.safe_load((run.path / "config.yaml").read_text())
    assert (told["toy"], told["preset"], told["optim"]["base_lr"]) == ({"parts": 2}, "digits", 1e-3)
    about = json.loads((run.backbone / "config.json").read_text())["ssl_vit"]
    assert (about["method"], about["objective"]) == ("toy", "Toy")
    assert load_backbone(str(run.backbone)).backbone.embed_dim == 16
    assert "4 parts" in capsys.readouterr().out


# Names of protocols, of weights and of a family, no names of methods.
ALLOWED = {
    ("configs/protocols.py", "aug-mae"),
    ("configs/protocols.py", "aug-dino"),
    ("configs/protocols.py", "linear-aug-mae"),
    ("configs/protocols.py", "linear-aug-dino"),
    ("verdict/networks.py", "vit_small_patch16_224.dino"),
    ("configs/networks.py", "beit"),  # the family
}


def constants(path: Path) -> list[str]:
    """Strings of a module that are no docstrings."""
    tree = ast.parse(path.read_text())
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said
    ]


def test_options_verdict_and_report_name_no_method() -> None:
    root, names = Path(ssl_vit.__file__).parent, re.compile(rf"\b({'|'.join(METHODS)})\b")
    found = {
        (str(path.relative_to(root)), text)
        for room in ("configs", "verdict", "report")
        for path in sorted((root / room).rglob("*.py"))
        for text in constants(path)
        if names.search(text)
    }
    assert found - ALLOWED == set()
