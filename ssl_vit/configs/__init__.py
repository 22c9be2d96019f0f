"""Every option as a frozen dataclass; importing this never imports torch."""

from ssl_vit.configs.cli import from_dict, parse, run_script, to_dict, to_yaml
from ssl_vit.configs.data import AugmentConfig, DataConfig, LabelledDataConfig, LoadingConfig
from ssl_vit.configs.evaluation import (
    EvalConfig,
    JudgedConfig,
    KNNConfig,
    LabelsConfig,
    LinearConfig,
    ProbeOptimConfig,
)
from ssl_vit.configs.fit import FitConfig, OptimConfig, RunConfig
from ssl_vit.configs.model import ModelConfig
from ssl_vit.configs.objectives import MAEConfig, SupervisedConfig
from ssl_vit.configs.recipes import FinetuneRecipe, KNNRecipe, LinearRecipe, MAERecipe, SupervisedRecipe

__all__ = [
    "AugmentConfig",
    "DataConfig",
    "EvalConfig",
    "FinetuneRecipe",
    "FitConfig",
    "JudgedConfig",
    "KNNConfig",
    "KNNRecipe",
    "LabelledDataConfig",
    "LabelsConfig",
    "LinearConfig",
    "LinearRecipe",
    "LoadingConfig",
    "MAEConfig",
    "MAERecipe",
    "ModelConfig",
    "OptimConfig",
    "ProbeOptimConfig",
    "RunConfig",
    "SupervisedConfig",
    "SupervisedRecipe",
    "from_dict",
    "parse",
    "run_script",
    "to_dict",
    "to_yaml",
]
