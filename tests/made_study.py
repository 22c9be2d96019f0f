"""A study of made-up numbers, for tests of what is made of one."""

from __future__ import annotations

from pathlib import Path

from ssl_vit.configs import ModelConfig, ResolvedModel
from ssl_vit.verdict.options import VerdictConfig, verdict_recipe
from ssl_vit.verdict.study import Study

STUDY = Study(
    folder=Path("v"), recipe=verdict_recipe()(verdict=VerdictConfig(length=0.5)), kind="class", metric="top1",
    labels=(20, 1000), starts=("scratch", "mae", "cnn"), preset="digits",
    model=ResolvedModel("vit_tiny_patch16_224", 8, pool="mean"),
    networks={"cnn": ModelConfig("test_resnet", 32)}, given={}, epochs={"mae": 139.0, "dino": 139.0},
    base_lr={"scratch": 4e-3, "finetune": 2e-3}, tuned=(1000,), judged=100, heads=(5120, 640), matched=(1000,),
)  # fmt: skip
