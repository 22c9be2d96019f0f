"""What a verdict is about, as every process that works for it knows it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ssl_vit.configs import (
    AugmentConfig,
    EvalConfig,
    FitConfig,
    GuardedConfig,
    JudgedConfig,
    LabelsConfig,
    LoadingConfig,
    ModelConfig,
    PretrainingRecipe,
    ResolvedModel,
    RunConfig,
    as_command,
    presets,
    resolve,
)
from ssl_vit.data.targets import Kind
from ssl_vit.methods import METHODS
from ssl_vit.methods.starts import PUBLIC, VIT, from_scratch, start_called, worth
from ssl_vit.methods.supervised import FinetuneRecipe, SupervisedConfig, SupervisedRecipe, mixing
from ssl_vit.verdict.options import Comparison
from ssl_vit.verdict.tuning import Candidate

_STEPS = 1000
_EPOCHS = 100
_FEW = 500
"""Labels below which batches are small."""


@dataclass(frozen=True)
class Study:
    """Images, networks, numbers of labels and lengths."""

    folder: Path
    recipe: Comparison
    kind: Kind
    metric: str
    labels: tuple[int, ...]
    starts: tuple[str, ...]
    preset: str
    model: ResolvedModel
    """The Vision Transformer, resolved."""
    networks: dict[str, ModelConfig]
    """Those beside it, by their names in ``--verdict.networks``."""
    epochs: dict[str, float]
    """Of pre-training, by start, at full length."""
    base_lr: dict[str, float]
    """Learning rate per 256 images of training on labels: scratch, finetune, public."""
    tuned: tuple[int, ...]
    """Numbers of labels at which options are tuned; ``tuning.nearest`` says which others use them."""
    matched: tuple[int, ...]
    """Numbers of labels at which the baseline also gets the FLOPs of pre-training."""
    given: dict[str, tuple[str, ...]]
    """Pre-training runs that were there before, by start."""
    judged: int
    """Labelled images, training and test."""
    heads: tuple[int, int]
    """Weights of one linear head on a network's features, all poolings together, and on raw pixels."""
    lengths: dict[str, float] = field(default_factory=dict)
    """Share of its whole length that pre-training has, by start, where a plan cut it."""
    frozen: tuple[str, ...] = ()
    """Starts that are not fine-tuned, because that costs too much."""

    @property
    def worth(self) -> tuple[str, ...]:
        """What takes part unasked, what pays first before what pays later."""
        cnn = self.networks.get("cnn")
        return worth(self.preset, cnn and cnn.name)

    def uses(self, start: str) -> tuple[str, ...]:
        """How labels are used with a start."""
        return tuple(use for use in start_called(start).uses if use != "train" or start not in self.frozen)

    def length(self, start: str) -> float:
        """Of pre-training, as a share of the whole length."""
        return self.lengths.get(start, self.recipe.verdict.pretraining)

    def baseline(self, start: str) -> str:
        """Training from scratch of the same network; of public weights, which no network here is trained as, itself."""
        return from_scratch(start)

    def matched_starts(self) -> tuple[str, ...]:
        """Networks from scratch that are also trained at the FLOPs of pre-training: those that methods pre-train."""
        carried = {self.baseline(start) for start in self.starts if start_called(start).made}
        return tuple(start for start in self.starts if start in carried and not start_called(start).pretrained)

    def runs(self, start: str) -> tuple[Path, ...]:
        """Folders of what a method's features come from, by number of the pre-training seed."""
        if start in self.given:
            return tuple(Path(path) for path in self.given[start])
        if start_called(start).made:
            return tuple(self.folder / "runs" / f"{start}-{k}" for k in range(self.recipe.verdict.seeds))
        return (self.folder / "runs" / ("public" if start == "public" else "untrained"),)

    def number(self, start: str, draw: int) -> int | None:
        """Which pre-training seed a draw of labels goes with; None for methods without."""
        return draw % len(self.runs(start)) if start_called(start).pretrained else None

    def pretraining(self, start: str, number: int) -> PretrainingRecipe:
        """The recipe of one pre-training run; fields that the options leave open stay open."""
        base = self.whole(start)
        fit = replace(base.fit, epochs=round(self.epochs[start] * self.length(start), 3))
        return replace(base, seed=self.recipe.seed + number, fit=fit, run=RunConfig(str(self.runs(start)[number])))

    def whole(self, start: str) -> PretrainingRecipe:
        """The same at its whole length, which may be open."""
        cfg, known = self.recipe, start_called(start)
        if known.network == VIT:  # named, so that every method has the network of this study whatever an hour allows
            model, preset = replace(cfg.model, name=cfg.model.name or presets.named(self.preset).network), cfg.preset
        elif known.network == PUBLIC:
            model, preset = ModelConfig(weights=str(self.runs(PUBLIC)[0])), self.preset
        else:
            model, preset = self.networks[known.network], self.preset
        own = cfg.of(METHODS[known.method])
        return replace(own, preset=preset, data=cfg.data, model=model, eval=JudgedConfig(cfg.eval.data))

    def batch(self, labels: int) -> int:
        """Images per step of training on so many labels."""
        return 32 if labels < _FEW else 64

    def steps(self, labels: int) -> int:
        """Optimiser steps of training on so many labels, before tuning varies them."""
        usual = max(_STEPS, _EPOCHS * labels // self.batch(labels))
        return max(20, round(usual * self.recipe.verdict.length))

    def usual(self, start: str, labels: int) -> Candidate:
        """What is taken where the labels are too few to tune: the recipes' own options."""
        known = start_called(start)
        scratch = not known.pretrained
        rate = self.base_lr["scratch" if scratch else "public" if known.network == PUBLIC else "finetune"] * 64 / 256
        optim = (SupervisedRecipe() if scratch else FinetuneRecipe()).optim
        return Candidate(rate, optim.weight_decay, optim.layer_decay, 1.0)

    def augmentation(self, labels: int) -> tuple[AugmentConfig, SupervisedConfig]:
        """Augmentation and mixing of training on so many labels: the preset's for every method, whatever its input."""
        preset = presets.named(self.preset).seeing(self.steps(labels) * self.batch(labels))
        from_files = self.recipe.data.crop_from == "file"
        augment = resolve.labelled_augment(AugmentConfig(), preset, from_files=from_files)
        return augment, replace(SupervisedConfig(), **mixing(preset, labels, self.kind))

    def training(
        self, start: str, labels: int, draw: int, chosen: Candidate, folder: Path, *, held_out: bool = False,
        steps: int | None = None,
    ) -> tuple[str, SupervisedRecipe | FinetuneRecipe]:  # fmt: skip
        """The script and the options that train all weights on one draw of labels.

        ``chosen`` are tuned options, and ``draw`` is also the seed; ``held_out`` judges on a fifth of the labels, and
        ``steps`` takes the place of the tuned length.
        """
        cfg = self.recipe
        length = steps or max(1, round(self.steps(labels) * chosen.length))
        augment, supervised = self.augmentation(labels)
        shared: dict[str, Any] = {
            "seed": draw, "run": RunConfig(str(folder)), "augment": augment, "supervised": supervised,
            "eval": LabelsConfig(cfg.eval.data, labels, draw, cfg.eval.metric, held_out),
            "fit": FitConfig(
                epochs=1e-6, min_steps=length, batch_size=self.batch(labels), clip_grad=1.0,
                log_every=max(1, length // 4), checkpoint_minutes=10.0, keep_checkpoints=1,
            ),
        }  # fmt: skip
        tuned = {"lr": chosen.lr, "weight_decay": chosen.weight_decay, "layer_decay": chosen.layer_decay}
        known = start_called(start)
        if not known.pretrained:
            model = self.model if known.network == VIT else self.networks[known.network]
            data = GuardedConfig(**{f.name: getattr(cfg.data, f.name) for f in fields(GuardedConfig)})
            data = replace(data, split=None)  # that is the pool's; labelled images are --eval.data.split's for all
            usual = SupervisedRecipe(preset=self.preset, data=data, model=model, **shared)
            return "recipes/supervised.py", replace(usual, optim=replace(usual.optim, **tuned))
        loading = LoadingConfig(cfg.data.cache, cfg.data.crop_from, cfg.data.workers)
        usual = FinetuneRecipe(backbone=str(self.runs(start)[self.number(start, draw) or 0]), data=loading, **shared)
        return "eval/finetune.py", replace(usual, optim=replace(usual.optim, **tuned))

    def extraction(self) -> EvalConfig:
        """How frozen features are judged, with all labels."""
        return EvalConfig(data=self.recipe.eval.data, metric=self.recipe.eval.metric)

    def command(self, script: str, config: Any) -> str:
        """What a person types to get the same number, into a folder of their own."""
        return as_command(script, replace(config, run=RunConfig()))
