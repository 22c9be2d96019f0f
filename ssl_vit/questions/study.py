"""What the questions are about, as every process that works for them knows it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ssl_vit.configs import (
    AugmentConfig,
    FitConfig,
    GuardedConfig,
    JudgedConfig,
    LabelsConfig,
    LoadingConfig,
    PretrainingRecipe,
    RunConfig,
)
from ssl_vit.data.targets import Kind
from ssl_vit.methods import METHODS
from ssl_vit.methods.supervised import FinetuneRecipe, LabelledRecipe, SupervisedConfig, SupervisedRecipe
from ssl_vit.questions.options import Questions
from ssl_vit.questions.scope import Pretraining, Scope, Training

RATES = {"labels": 2e-3, "mae": 2e-3, "dino": 1e-3, "lejepa": 1e-3}
"""AdamW's learning rate, the same for every network, of training on labels and of each method. A preset's rates are for
runs of thousands of steps; a hundred steps at them leave every network half trained."""


@dataclass(frozen=True)
class Study:
    """Images, options and how much is done."""

    folder: Path
    recipe: Questions
    scope: Scope
    kind: Kind
    metric: str
    preset: str
    """What fills the options left open, of every network alike."""

    def run(self, pretraining: Pretraining) -> Path:
        """Where a pre-training run is.

        Args:
            pretraining: Which.
        """
        return self.folder / "runs" / pretraining.key

    def network(self, training: Training) -> Path:
        """Where a trained network stays.

        Args:
            training: Which.
        """
        return self.folder / "networks" / training.key

    def pretrains(self, pretraining: Pretraining, epochs: float | None = None) -> PretrainingRecipe:
        """The recipe of a pre-training run; fields that the options leave open stay open.

        Args:
            pretraining: Which.
            epochs: Its length; None for what the scope says.
        """
        cfg, own = self.recipe, METHODS[pretraining.method].recipe()
        length = dict(self.scope.epochs).get(pretraining.method) if epochs is None else epochs
        return replace(
            own, seed=cfg.seed + pretraining.seed, preset=self.preset, data=cfg.data,
            model=self.scope.model(pretraining), eval=JudgedConfig(cfg.eval.data),
            fit=replace(
                own.fit, epochs=length, batch_size=self.scope.batch, checkpoint_minutes=10.0, keep_checkpoints=1
            ),
            optim=replace(own.optim, lr=RATES[pretraining.method]),
            run=RunConfig(str(self.run(pretraining))),
        )  # fmt: skip

    def trains(self, training: Training, folder: Path, steps: int) -> SupervisedRecipe | FinetuneRecipe:
        """The recipe of a training on labels: crops and mirror images alone, whatever the network.

        Mixing, RandAugment, erasing, stochastic depth and slower layers keep networks from learning by heart, which
        training so short never comes to.

        Args:
            training: Which.
            folder: Where it works.
            steps: How long.
        """
        cfg = self.recipe
        augment = AugmentConfig(policy="none", erasing=0.0)
        if training.plain:
            augment = AugmentConfig(policy="none", erasing=0.0, crop_scale=(1.0, 1.0), flip=False)
        shared: dict[str, Any] = {
            "seed": cfg.seed + training.draw, "run": RunConfig(str(folder)), "augment": augment,
            "supervised": SupervisedConfig(mixup=0.0, cutmix=0.0, drop_path=0.0),
            "optim": replace(LabelledRecipe().optim, lr=RATES["labels"]),
            "eval": LabelsConfig(cfg.eval.data, training.labels, training.draw, cfg.eval.metric),
            "fit": FitConfig(
                epochs=1e-6, min_steps=steps, batch_size=self.scope.batch, clip_grad=1.0,
                log_every=max(1, steps // 4), checkpoint_minutes=10.0, keep_checkpoints=1,
            ),
        }  # fmt: skip
        before = training.pretraining
        if before is not None:
            loading = LoadingConfig(cfg.data.cache, cfg.data.crop_from, cfg.data.workers)
            return FinetuneRecipe(backbone=str(self.run(before)), data=loading, **shared)
        data = GuardedConfig(**{name: getattr(cfg.data, name) for name in vars(GuardedConfig())})
        return SupervisedRecipe(preset=self.preset, data=data, model=self.scope.model(training), **shared)
