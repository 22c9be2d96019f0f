"""A watch over training: what it asks, when it looks, and that training does not notice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from ssl_vit.configs import DataConfig, LabelledDataConfig, PoolConfig, ResolvedAugment, ResolvedModel
from ssl_vit.configs.fit import FitConfig, ResolvedFit, ResolvedOptim
from ssl_vit.core.errors import UserError
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.loader import Loader
from ssl_vit.data.scale import measure_scale
from ssl_vit.data.sources.opening import open_labelled, open_pool
from ssl_vit.evaluation.features import backbone_extractor, extract_features
from ssl_vit.evaluation.knn import by_neighbours
from ssl_vit.evaluation.metrics import judge
from ssl_vit.evaluation.watching import Neighbours, open_watch
from ssl_vit.methods import METHODS
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.methods.supervised import FinetuneRecipe, SupervisedRecipe
from ssl_vit.models.build import build_backbone
from ssl_vit.objectives.simmim import SimMIM, simmim_view
from ssl_vit.runs.directory import RunDir
from ssl_vit.script import check_values
from ssl_vit.training import launch, loop
from ssl_vit.training.loop import is_watched
from ssl_vit.training.metering import Meter
from ssl_vit.training.pretraining import _begin

CPU = torch.device("cpu")
PLAIN = ResolvedAugment(crop_scale=(1.0, 1.0), flip=False, policy="none", erasing=0.0)


def fit_of(**changes: object) -> ResolvedFit:
    return ResolvedFit(**{"epochs": 1.0, "min_steps": 0, "batch_size": 8, "precision": "fp32"} | changes)


@pytest.fixture(scope="module")
def opened():
    """The watch of a run on digits, without its pixel statistics, and what the run has resolved."""
    method, asked = METHODS["mae"], MAERecipe(fit=FitConfig(epochs=1.0, watch="knn"))
    begun = _begin(method, asked)
    cfg = method.resolve(begun.asked, begun.facts, begun.preset)
    return open_watch(cfg, begun.pool.form), cfg


@pytest.fixture
def watch(opened) -> Neighbours:
    return opened[0](measure_scale(open_pool(DataConfig(), LabelledDataConfig())[0]))


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return build_backbone(ResolvedModel("vit_tiny_patch16_224", 8, 2, 24, 2, 2, "sincos", "mean"), 1)


def test_labelled_training_images_alone_take_part(watch: Neighbours) -> None:
    data = open_labelled(PoolConfig(), LabelledDataConfig())
    voters, asked = set(watch.voters.ids.tolist()), set(watch.asked.ids.tolist())
    assert voters | asked == set(data.train.ids.tolist()) and not voters & asked
    assert not (voters | asked) & set(data.test.ids.tolist())
    assert (len(voters), len(asked)) == (1154, 284)
    assert watch.describe(10.0).endswith("k-NN, top-1 %, of 284 labelled training images by 1,154 others, every 10 %; "
                                         "nothing is chosen by it")  # fmt: skip


def test_a_look_is_k_nn_as_evaluation_has_it(watch: Neighbours) -> None:
    backbone = network()
    extract = backbone_extractor(backbone, watch.scale, size=8, pool=watch.pool, device=CPU)
    x, queries = (extract_features(extract, part, batch_size=64, device=CPU).x for part in (watch.voters, watch.asked))
    scores = by_neighbours("class", x, watch.voters.truth, queries, 10, ks=(20,), device=CPU)[20]
    value = judge("class", scores, watch.asked.truth, watch.asked.classes)["top1"]
    assert watch(backbone) == {"watch/knn_top1": pytest.approx(value)}


def test_a_look_draws_nothing_and_leaves_the_network_as_it_was(watch: Neighbours) -> None:
    backbone = network().train()
    before, state = {k: v.clone() for k, v in backbone.state_dict().items()}, torch.get_rng_state()
    numbers = np.random.get_state()[1].tolist()  # type: ignore[index]
    watch(backbone)
    assert torch.equal(state, torch.get_rng_state()) and numbers == np.random.get_state()[1].tolist()  # type: ignore[index]
    assert all(part.training for part in backbone.modules())
    assert all(torch.equal(before[k], v) for k, v in backbone.state_dict().items())


def test_features_that_are_no_numbers_say_nothing(watch: Neighbours) -> None:
    backbone = network()
    with torch.no_grad():
        next(backbone.parameters()).fill_(float("nan"))
        for parameter in backbone.parameters():
            parameter.fill_(float("nan"))
    assert watch(backbone) == {}


@pytest.mark.parametrize(
    ("percent", "every", "steps", "looks"),
    [(10.0, 10, 200, [*range(20, 201, 20)]), (50.0, 10, 45, [30, 45]), (100.0, 7, 20, [20]),
     (10.0, 50, 120, [50, 100, 120]), (1.0, 1, 5, [1, 2, 3, 4, 5]), (33.0, 10, 100, [40, 70, 100])],
)  # fmt: skip
def test_looks_fall_on_lines_at_or_after_every_so_many_per_cent(
    percent: float, every: int, steps: int, looks: list[int]
) -> None:
    fit = fit_of(watch_percent=percent, log_every=every)
    lines = [step for step in range(1, steps + 1) if step % every == 0 or step == steps]
    assert [step for step in lines if is_watched(step, steps, fit)] == looks


class Torn(Exception):
    """The run ends between two checkpoints."""


def test_training_does_not_notice_and_a_look_that_was_lost_is_made_again(watch: Neighbours, tmp_path: Path) -> None:
    pool: ImageSet = open_pool(DataConfig(), LabelledDataConfig())[0].subset(np.arange(160))
    states: dict[str, dict[str, torch.Tensor]] = {}

    def train(name: str, watched: bool, breaks_after: int | None = None) -> None:
        objective = SimMIM(network())
        loader = Loader(pool, batch_size=8, micro_batch=8, seed=0, device=CPU)
        draw = simmim_view(watch.scale, PLAIN, size=8, side=2, kept=6, dtype=torch.float32)
        calls = iter(range(1000))

        def view(batch, seed):
            if next(calls) == breaks_after:
                raise Torn
            return draw(batch, seed)

        (tmp_path / name).mkdir(exist_ok=True)
        loop.fit(
            objective, loader, view, fit=fit_of(epochs=2.0, log_every=2, checkpoint_steps=15, watch_percent=25.0),
            optim=ResolvedOptim(base_lr=1e-3), run=RunDir(tmp_path / name, True), accelerator=launch.join("fp32"),
            seed=0, watch=watch if watched else None,
        )  # fmt: skip
        states[name] = objective.state_dict()

    train("with", True)
    train("without", False)
    with pytest.raises(Torn):
        train("torn", True, 23)
    train("torn", True)
    with pytest.raises(Torn):
        train("begun", True, 4)  # before anything was saved: the look at the start is made again, too
    train("begun", True)
    for name in ("without", "torn", "begun"):
        assert all(torch.equal(v, states[name][k]) for k, v in states["with"].items()), name
    for name in ("torn", "begun"):
        assert rows(tmp_path / name) == rows(tmp_path / "with"), name
    looks = [row for row in rows(tmp_path / "with") if "watch/knn_top1" in row]
    assert [row["step"] for row in looks] == [0, 10, 20, 30, 40]
    plain = [{k: v for k, v in row.items() if not k.startswith("watch")} for row in rows(tmp_path / "with")[1:]]
    assert plain == rows(tmp_path / "without")
    timing = rows(tmp_path / "with", "timing.jsonl")
    assert [line["step"] for line in timing if "watch_seconds" in line] == [2, 10, 20, 30, 40]
    assert "watch_seconds" not in RunDir(tmp_path / "with", True).training_speed()


def rows(run: Path, file: str = "metrics.jsonl") -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / file).read_text().splitlines()]


def test_time_aside_is_no_time_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.0, 6.0, 10.0, 20.0])
    monkeypatch.setattr("ssl_vit.training.metering.time.perf_counter", lambda: next(times))
    meter = Meter(CPU, 1.0, 1.0)
    with meter.aside():
        pass
    first, second = meter.read(50, 1), meter.read(50, 1)
    assert (first["images_per_second"], first["watch_seconds"]) == (10.0, 5.0)
    assert second["images_per_second"] == 5.0 and "watch_seconds" not in second


def test_runs_without_labels_are_told_at_once(opened, tmp_path: Path) -> None:
    from PIL import Image

    for i in range(12):
        Image.fromarray(np.full((8, 8), 20 * i, dtype=np.uint8)).save(tmp_path / f"{i}.png")
    _, cfg = opened
    own = replace(cfg, data=PoolConfig(path=str(tmp_path)))
    form = open_pool(own.data, LabelledDataConfig())[0].form
    with pytest.raises(UserError, match=r"^--fit.watch knn: labels are needed, .*; to train without a watch, leave"):
        open_watch(own, form)
    with pytest.raises(UserError, match="other channels or another bit depth"):
        open_watch(cfg, form._replace(channels=3))


def test_training_on_labels_is_not_watched() -> None:
    check_values(MAERecipe(fit=FitConfig(watch="knn")))
    for recipe in (SupervisedRecipe, FinetuneRecipe):
        with pytest.raises(UserError, match=r"--fit.watch knn looks at the features of pre-training \(mae, dino"):
            check_values(recipe(fit=FitConfig(watch="knn")))
