"""Looks at features: known spreads, when they are due, and that training does not notice them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ssl_vit.configs import DataConfig, LabelledDataConfig, ResolvedAugment, ResolvedModel
from ssl_vit.configs.fit import ResolvedFit, ResolvedOptim
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.loader import Batch, Loader
from ssl_vit.data.scale import measure_scale
from ssl_vit.data.sources.opening import open_pool
from ssl_vit.evaluation.features import backbone_extractor, extract_features
from ssl_vit.models.build import build_backbone
from ssl_vit.objectives.base import Clock
from ssl_vit.objectives.health import spread
from ssl_vit.objectives.simmim import SimMIM, simmim_view
from ssl_vit.runs.directory import RunDir
from ssl_vit.training import launch, loop
from ssl_vit.training.health import Health

PLAIN = ResolvedAugment(crop_scale=(1.0, 1.0), flip=False, policy="none", erasing=0.0)


@pytest.fixture(scope="module")
def pool() -> ImageSet:
    return open_pool(DataConfig(), LabelledDataConfig())[0].subset(np.arange(160))


def looking(pool: ImageSet, batch: int = 32, micro: int | None = None) -> Health:
    loader = Loader(pool, batch_size=batch, micro_batch=micro or batch, seed=0, device=torch.device("cpu"))
    return Health(loader, measure_scale(pool), "mean")


def network(kind: str = "test_resnet") -> torch.nn.Module:
    torch.manual_seed(0)
    plain = ResolvedModel("vit_tiny_patch16_224", 8, 2, 24, 2, 2, "sincos", "mean")
    return build_backbone(plain if kind == "vit" else ResolvedModel(kind, 32, pool="mean"), 1)


def test_features_of_known_spread() -> None:
    x = np.zeros((40, 6))
    x[np.arange(40), np.arange(40) % 4] = 1.0  # four directions, equally often
    assert spread(x) == pytest.approx({"effective_rank": 4.0, "feature_std": math.sqrt(0.75)})
    assert spread(np.tile(x, (1, 9))[:, :50]) == pytest.approx(spread(np.tile(x, (1, 9))[:, :50][::-1]))
    same = spread(np.ones((40, 6), dtype=np.float32))
    assert same == pytest.approx({"effective_rank": 1.0, "feature_std": 0.0}, abs=1e-3)
    assert spread(np.full((4, 6), np.inf)) == {}
    assert spread(np.zeros((4, 6)))["feature_std"] == 0.0


def test_wide_and_long_features_have_the_rank_of_their_singular_values() -> None:
    rng = np.random.default_rng(0)
    for shape in ((30, 7), (7, 30)):
        x = rng.normal(size=shape)
        s = np.linalg.svd(x, compute_uv=False)
        p = s / s.sum()
        assert spread(x)["effective_rank"] == pytest.approx(np.exp(-(p * np.log(p)).sum()))


def test_looks_are_rare_and_the_last_step_has_one(pool: ImageSet) -> None:
    health = looking(pool)
    for per_epoch, total, wanted in ((11.2, 225, [100, 200, 225]), (30.0, 250, [120, 240, 250]), (5000.0, 90, [90]),
                                     (5000.0, 301, [100, 200, 300, 301])):  # fmt: skip
        due = [step + 1 for step in range(total) if health.is_due(Clock(step, total, per_epoch))]
        assert due == wanted


def test_a_look_sees_what_evaluation_sees(pool: ImageSet) -> None:
    """Twice a batch of images, evenly spaced, in parts of a micro-batch."""
    backbone = network("vit")
    found = looking(pool, batch=32, micro=8).look(backbone)
    chosen = replace(pool.subset(np.linspace(0, 159, 64).astype(int)), labels=np.zeros(64, dtype=np.int64))
    extract = backbone_extractor(backbone, measure_scale(pool), size=8, pool="mean", device=torch.device("cpu"))
    x = extract_features(extract, chosen, batch_size=64, device=torch.device("cpu")).x
    assert found == pytest.approx(spread(x), rel=1e-4)


def test_a_look_leaves_modes_statistics_and_random_numbers_alone(pool: ImageSet) -> None:
    backbone = network().train()
    half = next(part for part in backbone.modules() if isinstance(part, torch.nn.Conv2d)).eval()
    before = {k: v.clone() for k, v in backbone.state_dict().items()}
    state = torch.get_rng_state()
    health = looking(pool)
    torch.set_rng_state(state)
    found = health.look(backbone)
    assert set(found) == {"effective_rank", "feature_std"}
    assert torch.equal(state, torch.get_rng_state())
    assert all(part.training == (part is not half) for part in backbone.modules())
    assert all(torch.equal(before[k], v) for k, v in backbone.state_dict().items())
    assert all(p.requires_grad for p in backbone.parameters())


class Torn(Exception):
    """The run ends between two checkpoints."""


@pytest.mark.parametrize("kind", ["vit", "test_resnet"])
def test_training_does_not_notice(kind: str, pool: ImageSet, tmp_path: Path) -> None:
    """Weights and metrics are the same bit for bit with and without looks, which resume with the run."""
    scale, states = measure_scale(pool), {}

    def train(name: str, breaks_after: int | None = None) -> None:
        objective = SimMIM(network(kind))
        loader = Loader(pool, batch_size=8, micro_batch=8, seed=0, device=torch.device("cpu"))
        size = objective.backbone.img_size
        cfg = ResolvedFit(epochs=5.25, min_steps=0, batch_size=8, precision="fp32", log_every=1, checkpoint_steps=90)
        draw = simmim_view(scale, PLAIN, size=size, side=size // 4, kept=6, dtype=torch.float32)
        calls = iter(range(1000))

        def view(batch: Batch, seed: int) -> dict[str, torch.Tensor]:
            if next(calls) == breaks_after:
                raise Torn
            return draw(batch, seed)

        (tmp_path / name).mkdir(exist_ok=True)
        loop.fit(
            objective, loader, view, fit=cfg, optim=ResolvedOptim(base_lr=1e-3), run=RunDir(tmp_path / name, True),
            accelerator=launch.join("fp32"), seed=0,
            health=None if name == "without" else Health(loader, scale, "mean"),
        )  # fmt: skip
        states[name] = objective.state_dict()

    train("with")
    train("without")
    with pytest.raises(Torn):
        train("torn", 103)
    assert [row["step"] for row in rows(tmp_path / "torn")] == [100]
    train("torn")
    for name in ("without", "torn"):
        assert all(torch.equal(v, states[name][k]) for k, v in states["with"].items())
        found = (tmp_path / name / "metrics.jsonl").read_bytes()
        assert found == (tmp_path / "with" / "metrics.jsonl").read_bytes()
    assert not (tmp_path / "without" / "health.jsonl").exists()
    assert [row["step"] for row in rows(tmp_path / "with")] == [100, 105]
    assert rows(tmp_path / "torn") == rows(tmp_path / "with")


def rows(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "health.jsonl").read_text().splitlines()]
