"""Every option as a frozen dataclass; importing this never imports torch."""

from ssl_vit.configs.cli import from_dict, parse, run_script, to_dict, to_yaml
from ssl_vit.configs.crops import CropsConfig
from ssl_vit.configs.data import (
    AugmentConfig,
    DataConfig,
    GuardConfig,
    LabelledDataConfig,
    LoadingConfig,
    PoolConfig,
    SourceConfig,
)
from ssl_vit.configs.evaluation import (
    EvalConfig,
    FiguresConfig,
    JudgedConfig,
    KNNConfig,
    LabelsConfig,
    LinearConfig,
    PredictConfig,
    ProbeOptimConfig,
)
from ssl_vit.configs.fit import FitConfig, OptimConfig, RunConfig
from ssl_vit.configs.model import AdaptConfig, ModelConfig
from ssl_vit.configs.objectives import DINOConfig, MAEConfig, SupervisedConfig
from ssl_vit.configs.recipes import (
    DINORecipe,
    FiguresRecipe,
    FinetuneRecipe,
    KNNRecipe,
    LinearRecipe,
    MAERecipe,
    PredictRecipe,
    SupervisedRecipe,
)

__all__ = [
    "AdaptConfig",
    "AugmentConfig",
    "CropsConfig",
    "DINOConfig",
    "DINORecipe",
    "DataConfig",
    "EvalConfig",
    "FiguresConfig",
    "FiguresRecipe",
    "FinetuneRecipe",
    "FitConfig",
    "GuardConfig",
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
    "PoolConfig",
    "PredictConfig",
    "PredictRecipe",
    "ProbeOptimConfig",
    "RunConfig",
    "SourceConfig",
    "SupervisedConfig",
    "SupervisedRecipe",
    "from_dict",
    "parse",
    "run_script",
    "to_dict",
    "to_yaml",
]
