"""LeJEPA (Balestriero and LeCun 2025, arXiv 2511.08544): views of an image agree, and embeddings are Gaussian.

Agreement alone is reached by giving every image one answer. What forbids that is SIGReg: along every direction the
embeddings of a batch must be spread like a standard normal. There is no teacher, centre, temperature or stop-gradient.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ssl_vit.core.dist import differentiable_sum, rank_and_world
from ssl_vit.core.randomness import make_key, normal
from ssl_vit.data.scale import PixelScale
from ssl_vit.methods.lejepa import ResolvedLeJEPA, ResolvedLeJEPARecipe
from ssl_vit.models.backbone import Backbone, Pool, pooled_views
from ssl_vit.models.batchnorm import synchronise_batch_norm
from ssl_vit.objectives.base import Built, Clock, Objective, StepOutput, train_all
from ssl_vit.views.multicrop import GLOBALS, by_size, views_for

_KNOTS, _FURTHEST = 17, 3.0
"""Points of the half line at which characteristic functions are compared, and the last of them."""


def disagreement(z: Float[Tensor, "V B Z"], centres: int) -> Float[Tensor, ""]:
    """Mean squared distance of every view's embedding to the mean of its image's global ones (section 5.1).

    Args:
        z: Embeddings.
        centres: Global views, which come first.
    """
    return (z - z[:centres].mean(dim=0)).square().mean()


def sketched_gaussianity(z: Float[Tensor, "V B Z"], directions: Float[Tensor, "Z A"]) -> Float[Tensor, ""]:
    """SIGReg: how far embeddings are from a standard normal, seen along single directions (section 4).

    For every view and direction it is the statistic of Epps and Pulley over the N images of all processes,
    N times the integral of |phi_N(t) - exp(-t^2 / 2)|^2 exp(-t^2 / 2), where phi_N(t) is the mean of exp(i t a.z). The
    integrand is even: trapezia on half of the line count twice.

    Args:
        z: Embeddings, of as many images on every process.
        directions: A of them, of length 1.
    """
    t = torch.linspace(0.0, _FURTHEST, _KNOTS, dtype=z.dtype, device=z.device)
    normals = torch.exp(-0.5 * t.square())
    weights = torch.full_like(t, 2.0 * _FURTHEST / (_KNOTS - 1))
    weights[0] *= 0.5
    weights[-1] *= 0.5
    angles = (z @ directions)[..., None] * t
    images = z.shape[1] * rank_and_world()[1]
    means = differentiable_sum(torch.stack([angles.cos().sum(dim=1), angles.sin().sum(dim=1)])) / images
    distance = (means[0] - normals).square() + means[1].square()
    return images * (distance @ (weights * normals)).mean()


def projector(width: int, *, hidden: int, out_dim: int, layers: int) -> nn.Sequential:
    """Features to embeddings: linear layers with batch normalisation and ReLU between them.

    Args:
        width: D of the features.
        hidden: Width of the layers between.
        out_dim: Z of the embeddings.
        layers: Linear layers, at least 1.
    """
    made, widths = nn.Sequential(), [width, *[hidden] * (layers - 1)]
    for before, after in pairwise(widths):
        made.extend([nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()])
    made.append(nn.Linear(widths[-1], out_dim))
    synchronise_batch_norm(made)
    return made


class LeJEPA(Objective):
    """(1 - w) times the disagreement of views plus w times SIGReg (equation of section 5.1).

    Statistics are those of a micro-batch of all processes; the sum over views and images that makes them is the only
    thing that processes exchange.
    """

    batch_statistics = True
    smaller = ("fewer --crops.local_crops", "fewer --lejepa.slices")

    def __init__(
        self, backbone: Backbone, cfg: ResolvedLeJEPA, *, pool: Pool, seed: int, freeze_positions: bool = False
    ) -> None:
        """Adds a projector to a backbone.

        Args:
            backbone: Random or pre-trained.
            cfg: Resolved.
            pool: What represents an image.
            seed: Of the directions.
            freeze_positions: Leave the position embedding as it is (a sine-cosine table).
        """
        super().__init__()
        train_all(backbone, freeze_positions)
        self.backbone, self.cfg, self.seed = backbone, cfg, seed
        self.pool: Pool = pool
        width = backbone.pooled_width(pool)
        self.projector = projector(width, hidden=cfg.head_hidden, out_dim=cfg.out_dim, layers=cfg.head_layers)
        self.directions: Tensor
        self.register_buffer("directions", torch.empty(cfg.out_dim, cfg.slices), persistent=False)
        self._point(0)

    def begin_step(self, clock: Clock) -> None:
        """Draws directions, the same on every process."""
        self._point(clock.step)

    def _point(self, step: int) -> None:
        rows, columns = self.directions.shape
        key = make_key(self.seed, "directions", step, device=self.directions.device)
        drawn = normal(key, rows * columns).view(rows, columns)
        self.directions.copy_(drawn / drawn.norm(dim=0))

    def forward(self, inputs: dict[str, Tensor]) -> StepOutput:
        """The loss of ``globals`` Float[B G C S S] and, where there are any, ``locals`` Float[B L C s s].

        With stochastic depth there are ``drop_globals`` Float[B G *L] and ``drop_locals``.
        """
        x = pooled_views(self.backbone, self.pool, by_size(inputs))
        z = self.projector(x.flatten(0, 1)).unflatten(0, x.shape[:2]).transpose(0, 1)
        return self.judge(z)

    def judge(self, z: Float[Tensor, "V B Z"]) -> StepOutput:
        """The loss of embeddings (global views first), in single precision at least."""
        z = z.to(torch.promote_types(z.dtype, torch.float32))
        with torch.autocast(z.device.type, enabled=False):
            apart, odd = disagreement(z, GLOBALS), sketched_gaussianity(z, self.directions)
            loss = (1.0 - self.cfg.weight) * apart + self.cfg.weight * odd
        return StepOutput(loss, {"invariance": apart.detach(), "sigreg": odd.detach()})


def build(cfg: ResolvedLeJEPARecipe, backbone: Backbone, scale: PixelScale, dtype: torch.dtype) -> Built:
    """Objective and view of one run; UserError for local crops that the backbone cannot read."""
    model = cfg.model
    seen = views_for(backbone, model, cfg.crops, cfg.lejepa.drop_path, scale, dtype)
    fixed = model.positions == "sincos"
    objective = LeJEPA(backbone, cfg.lejepa, pool=model.pool, seed=cfg.seed, freeze_positions=fixed)
    return Built(objective, *seen)
