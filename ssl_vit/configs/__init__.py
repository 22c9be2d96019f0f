"""Every option as a frozen dataclass; importing this never imports torch."""

from ssl_vit.configs.cli import from_dict, parse, to_dict, to_yaml
from ssl_vit.configs.crops import CropsConfig, ResolvedCrops
from ssl_vit.configs.data import (
    AugmentConfig,
    DataConfig,
    GuardConfig,
    LabelledDataConfig,
    LoadingConfig,
    PoolConfig,
    ResolvedAugment,
    SourceConfig,
)
from ssl_vit.configs.evaluation import (
    EvalConfig,
    FiguresConfig,
    JudgedConfig,
    JudgedMetricConfig,
    KNNConfig,
    LabelsConfig,
    LinearConfig,
    PredictConfig,
    ProbeOptimConfig,
)
from ssl_vit.configs.fit import FitConfig, OptimConfig, ResolvedFit, ResolvedOptim, RunConfig
from ssl_vit.configs.model import AdaptConfig, ModelConfig, ResolvedModel
from ssl_vit.configs.recipes import (
    ExportRecipe,
    FiguresRecipe,
    KNNRecipe,
    LinearRecipe,
    PredictRecipe,
    PretrainingRecipe,
    ResolvedLinear,
    ResolvedPretraining,
)
from ssl_vit.configs.words import as_command, as_words, flat

__all__ = [
    "AdaptConfig",
    "AugmentConfig",
    "CropsConfig",
    "DataConfig",
    "EvalConfig",
    "ExportRecipe",
    "FiguresConfig",
    "FiguresRecipe",
    "FitConfig",
    "GuardConfig",
    "JudgedConfig",
    "JudgedMetricConfig",
    "KNNConfig",
    "KNNRecipe",
    "LabelledDataConfig",
    "LabelsConfig",
    "LinearConfig",
    "LinearRecipe",
    "LoadingConfig",
    "ModelConfig",
    "OptimConfig",
    "PoolConfig",
    "PredictConfig",
    "PredictRecipe",
    "PretrainingRecipe",
    "ProbeOptimConfig",
    "ResolvedAugment",
    "ResolvedCrops",
    "ResolvedFit",
    "ResolvedLinear",
    "ResolvedModel",
    "ResolvedOptim",
    "ResolvedPretraining",
    "RunConfig",
    "SourceConfig",
    "as_command",
    "as_words",
    "flat",
    "from_dict",
    "parse",
    "to_dict",
    "to_yaml",
]
