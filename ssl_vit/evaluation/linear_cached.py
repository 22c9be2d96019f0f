"""linear-cached: linear heads on features extracted once, their options chosen by cross-validation inside the labels.

Every learning rate, weight decay, pooling and fold is a head of its own, and so is the final fit on all labels; the
heads are trained side by side as one tensor, on the same mini-batches. A fold's head gives its own fold the weight
zero, in the loss and in the statistics that standardise the features.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from ssl_vit.configs import LinearConfig
from ssl_vit.configs.metrics import METRICS
from ssl_vit.core.errors import UserError
from ssl_vit.core.randomness import permutation
from ssl_vit.core.schedules import warmup_cosine
from ssl_vit.data.leading import headline
from ssl_vit.data.targets import Kind, TargetScale, measure_targets
from ssl_vit.evaluation.few_label import assign_folds
from ssl_vit.evaluation.metrics import judge

MOMENTUM = 0.9
_ELEMENTS = 2**26
"""Numbers held at once in the tensors that grow with the number of heads."""
_MOST, _LEAST_SHARE = 1e3, 1e-6
"""Deviations that no answer of a converged head to numbers reaches; the share of a rate below which none is tried."""


class CachedFit(NamedTuple):
    """The chosen head's answers."""

    scores: Float[np.ndarray, "q K"]
    """Logits, minus infinity for a class without training label; for regression the predicted numbers."""
    pool: str
    rate: float
    decay: float
    selection: str
    """How the three were chosen, in words."""
    validated: float | None
    """Mean of the headline metric over the folds that have it; None where nothing was chosen."""


class Heads(NamedTuple):
    """Trained heads: P parts (folds, then all labels) times H pairs of learning rate and weight decay."""

    weight: Float[Tensor, "P H D K"]
    bias: Float[Tensor, "P H 1 K"]
    mean: Float[Tensor, "P 1 D"]
    scale: Float[Tensor, "P 1 D"]
    """Deviation of each feature times the root of their number: standardised vectors have unit length on average, so
    one learning rate means the same at every width."""

    def outputs(self, x: Float[Tensor, "q D"], part: int, pair: int) -> Float[Tensor, "q K"]:
        """What one head says about features."""
        return ((x - self.mean[part]) / self.scale[part]) @ self.weight[part, pair] + self.bias[part, pair]


def linear_cached(
    train: Float[np.ndarray, "n E"],
    labels: np.ndarray,
    queries: Float[np.ndarray, "q E"],
    pools: Mapping[str, slice],
    *,
    kind: Kind,
    names: tuple[str, ...],
    cfg: LinearConfig,
    default_pool: str,
    seed: int,
    metric: str | None = None,
    groups: Int[np.ndarray, " n"] | None = None,
    device: torch.device | str = "cpu",
) -> CachedFit:
    """Trains on training features only; the queries' labels are never seen.

    Args:
        train: Training features, every candidate pooling somewhere among the E columns.
        labels: As ``ImageSet.labels``.
        queries: Features to answer for.
        pools: Candidate poolings, each with its columns; at equal scores the earlier one is taken.
        kind: Softmax cross-entropy, one logistic loss per label, or squared error on standardised targets.
        names: Of the K classes, labels or numbers.
        cfg: Candidates, defaults and lengths.
        default_pool: Taken when the labels are too few to choose.
        seed: Of folds and mini-batches.
        metric: What to choose by; default: the headline of these labels.
        groups: The group of every training image; groups are held out whole.
        device: Where to compute.

    Raises:
        UserError: When all labels are of one class.
    """
    if kind == "class" and len(np.unique(labels)) < 2:
        raise UserError(f"a linear probe needs labels of two classes; the {len(labels)} given have one")
    x, asked = (torch.from_numpy(a).to(device) for a in (train, queries))
    # Heads are trained in single precision, which keeps the spread of numbers where their mean is taken off first.
    units = measure_targets(labels) if kind == "regression" else None
    learnt = labels if units is None else units.standardise(labels)
    pairs = [(rate, decay) for rate in sorted(cfg.rates) for decay in sorted(cfg.decays, reverse=True)]
    folds = assign_folds(labels, kind, cfg.folds, seed, groups)

    def fixed(pool: str, pair: tuple[float, float], why: str) -> CachedFit:
        target = _targets(learnt, kind, len(names), np.ones((1, len(labels)), dtype=bool), x)
        rate, decay = pair
        while True:
            heads = next(_solve(x[:, pools[pool]], target, kind, [(rate, decay)], cfg, seed))
            out = _answer(heads.outputs(asked[:, pools[pool]], 0, 0), target, 0)
            if _sane(out, target, 0, kind) or rate < pair[0] * _LEAST_SHARE:
                break
            rate /= 10  # steps on a squared error grow without end above a rate that depends on the features
        said = f"fixed: {why}" + (f"; a learning rate of {pair[0]:g} diverged" if rate < pair[0] else "")
        return CachedFit(_told(out, labels, units), pool, rate, decay, said, None)

    usual = default_pool, (cfg.default_rate, cfg.default_decay)
    if len(pairs) * len(pools) == 1:
        return fixed(next(iter(pools)), pairs[0], "the only candidate")
    if folds is None:
        return fixed(*usual, f"too few labels{' or groups' if groups is not None else ''} for {cfg.folds} folds")
    parts = np.stack([*(folds != fold for fold in range(cfg.folds)), np.ones(len(labels), dtype=bool)])
    target = _targets(learnt, kind, len(names), parts, x)
    best: tuple[tuple[float, ...], CachedFit] | None = None
    metric = metric or headline(kind, labels)
    sign = METRICS[metric].sign
    for place, (pool, columns) in enumerate(pools.items()):
        features, first = x[:, columns], 0
        for heads in _solve(features, target, kind, pairs, cfg, seed):
            for h in range(heads.weight.shape[1]):
                found: list[float] = []
                for fold, held in enumerate(np.flatnonzero(~part) for part in parts[:-1]):
                    out = _answer(heads.outputs(features[torch.from_numpy(held).to(device)], fold, h), target, fold)
                    value: float | None = -sign * math.inf
                    if _sane(out, target, fold, kind):
                        told = out if units is None else units.restore(out)
                        value = judge(kind, told, labels[held], names, only=metric).get(metric)
                    if value is not None:  # a rare label may be in no image of a fold
                        found.append(value)
                score = float(np.mean(found)) if found else math.nan
                # Larger is better; at equal scores the smaller rate, the larger decay, the earlier pooling.
                rank = (sign * score if math.isfinite(score) else -math.inf, -float(first + h), -float(place))
                if best is None or rank > best[0]:
                    out = _answer(heads.outputs(asked[:, columns], cfg.folds, h), target, cfg.folds)
                    if not _sane(out, target, cfg.folds, kind):
                        continue  # it diverged on all labels, if not on the folds
                    how = f"best of {len(pairs)} x {len(pools)} by {cfg.folds}-fold cross-validation inside the labels"
                    best = rank, CachedFit(_told(out, labels, units), pool, *pairs[first + h], how, score)
            first += heads.weight.shape[1]
    if best is None or best[0][0] == -math.inf:
        return fixed(*usual, "in no fold can the metric be computed")
    return best[1]


class _Targets(NamedTuple):
    """What heads are trained towards, and how their outputs become answers."""

    values: Float[Tensor, "n K"] | Int[Tensor, " n"]
    """Numbers; of classes, which one: a row of zeros and a one is made of those that a step needs."""
    parts: Float[Tensor, "P n"]
    """1 where a part trains on an image."""
    mean: Float[Tensor, "P K"]
    """Regression: of the part's targets, else 0."""
    std: Float[Tensor, "P K"]
    """Regression: of the part's targets, else 1."""

    def at(self, rows: Int[Tensor, " b"]) -> Float[Tensor, "b K"]:
        """Numbers of some images."""
        found = self.values[rows]
        return found if found.dim() > 1 else F.one_hot(found, self.mean.shape[1]).to(self.mean.dtype)


def _targets(labels: np.ndarray, kind: Kind, width: int, parts: np.ndarray, like: Tensor) -> _Targets:
    target = torch.from_numpy(np.asarray(labels))
    target = target.to(like.device, torch.int64) if kind == "class" else target.to(like)
    mean, std = torch.zeros(len(parts), width).to(like), torch.ones(len(parts), width).to(like)
    if kind == "regression":
        for p, part in enumerate(parts):
            std[p], mean[p] = torch.std_mean(target[torch.from_numpy(part).to(like.device)], 0, correction=0)
        std[std == 0] = 1.0
    return _Targets(target, torch.from_numpy(parts).to(like), mean, std)


def _sane(answers: np.ndarray, target: _Targets, part: int, kind: Kind) -> bool:
    """Whether training converged: finite answers, and numbers not far from those trained on."""
    if kind != "regression" or not np.isfinite(answers).all():
        return bool(np.isfinite(answers).all())
    mean, std = (each[part].cpu().numpy() for each in (target.mean, target.std))
    return bool((np.abs(answers - mean) <= _MOST * std).all())


def _answer(outputs: Tensor, target: _Targets, part: int) -> np.ndarray:
    return (outputs * target.std[part] + target.mean[part]).cpu().numpy()


def _told(outputs: np.ndarray, labels: np.ndarray, units: TargetScale | None) -> np.ndarray:
    """Answers as they are given: numbers in their own units, and no class that no label is of."""
    if units is not None:
        return units.restore(outputs)
    if labels.ndim == 1:
        outputs[:, np.setdiff1d(np.arange(outputs.shape[1]), labels)] = -np.inf
    return outputs


def _solve(
    x: Float[Tensor, "n D"],
    target: _Targets,
    kind: Kind,
    pairs: list[tuple[float, float]],
    cfg: LinearConfig,
    seed: int,
) -> Iterator[Heads]:
    """All heads, as many pairs at a time as memory allows."""
    each = len(target.parts) * target.mean.shape[1] * max(x.shape[1], min(cfg.batch_size, len(x)))
    most = max(1, _ELEMENTS // each)
    for first in range(0, len(pairs), most):
        yield train_heads(x, target, kind, pairs[first : first + most], cfg, seed)


def train_heads(
    x: Float[Tensor, "n D"],
    target: _Targets,
    kind: Kind,
    pairs: list[tuple[float, float]],
    cfg: LinearConfig,
    seed: int,
) -> Heads:
    """SGD with momentum 0.9 and half a cosine to zero, for every part and every pair side by side.

    The gradient of all three losses with respect to an output is (prediction - target), so none needs autograd.

    Args:
        x: Features of one pooling.
        target: What to train towards, and on which images each part trains.
        kind: Decides the link between output and prediction.
        pairs: Learning rate and weight decay of each head.
        cfg: Passes, steps and batch size.
        seed: Of the mini-batches.
    """
    n, width = x.shape
    parts, count, outputs = len(target.parts), len(pairs), target.mean.shape[1]
    stats = [torch.std_mean(x[part > 0], dim=0, correction=0) for part in target.parts]
    mean = torch.stack([m for _, m in stats])[:, None]
    std = torch.stack([s for s, _ in stats])[:, None]
    # A feature that does not vary (but for rounding) within a part says nothing there.
    scale = torch.where(std > 1e-6 * (mean.abs() + std.amax(dim=2, keepdim=True)), std, torch.inf) * width**0.5
    # All heads' outputs for one class stand side by side: the softmax over classes is vectorised over heads.
    weight = x.new_zeros(parts, width, outputs * count)
    bias = x.new_zeros(parts, 1, outputs * count)
    velocity, bias_velocity = torch.zeros_like(weight), torch.zeros_like(bias)
    rate, decay = (x.new_tensor(v).repeat(outputs) for v in zip(*pairs, strict=True))
    batch = min(n, cfg.batch_size)
    steps = max(math.ceil(cfg.passes * n / batch), cfg.min_steps)
    for step, rows in zip(range(steps), _batches(n, batch, seed, x.device), strict=False):
        z = (x[rows] - mean) / scale
        out = torch.baddbmm(bias, z, weight).view(parts, batch, outputs, count)
        wanted = (target.at(rows) - target.mean[:, None]) / target.std[:, None]
        part = target.parts[:, rows]
        part = part / part.sum(dim=1, keepdim=True).clamp(min=1.0)
        error = (_predicted(out, kind) - wanted[..., None]) * part[:, :, None, None]
        error = error.view(parts, batch, outputs * count)
        now = rate * warmup_cosine(step, total_steps=steps, warmup_steps=0, peak=1.0, final=0.0)
        velocity.mul_(MOMENTUM).add_(torch.bmm(z.mT, error)).addcmul_(weight, decay)
        bias_velocity.mul_(MOMENTUM).add_(error.sum(dim=1, keepdim=True))
        weight.addcmul_(velocity, now, value=-1.0)
        bias.addcmul_(bias_velocity, now, value=-1.0)
    weight, bias = (v.view(parts, -1, outputs, count).permute(0, 3, 1, 2).contiguous() for v in (weight, bias))
    return Heads(weight, bias, mean, scale)


def _predicted(outputs: Tensor, kind: Kind) -> Tensor:
    if kind == "class":
        return outputs.softmax(dim=2)
    return outputs.sigmoid() if kind == "multilabel" else outputs


def _batches(n: int, batch: int, seed: int, device: torch.device) -> Iterator[Tensor]:
    """Positions of every step: one permutation after another, batches always full; all of few need no order."""
    while batch == n:
        yield torch.arange(n, device=device)
    left, epoch = torch.empty(0, dtype=torch.int64), 0
    while True:
        while len(left) < batch:
            left = torch.cat([left, permutation(seed, "linear-order", epoch, n=n)])
            epoch += 1
        yield left[:batch].to(device)
        left = left[batch:]
