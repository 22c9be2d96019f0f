"""Deformable Attention Transformer, version 1 (Xia et al. 2022, arXiv 2201.00520): queries choose what they read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float, Int
from timm.layers.norm import LayerNorm2d
from timm.layers.weight_init import trunc_normal_
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import Tensor, nn
from torch.nn import functional as F

from ssl_vit.models.attention import attention, by_heads
from ssl_vit.models.families.manners import Network, described, dropped, linear_rates

_OFFSET_KERNELS = (9, 7, 5, 3)
"""Sides of the convolutions that find offsets, by stage."""
_HIDDEN = -100.0
"""Added to attention across the seam of a shifted window, as in the authors' code."""
_EPS = 1e-5


class WindowAttention(nn.Module):
    """Attention inside windows with a learned bias for each relative place (Swin's), which may be shifted."""

    def __init__(self, width: int, heads: int, window: int, *, shifted: bool) -> None:
        """Builds it.

        Args:
            width: D.
            heads: Divide D.
            window: Side of a window in places; it divides the sides of larger maps.
            shifted: By half a window, rounded up.
        """
        super().__init__()
        self.heads, self.window, self.shift = heads, window, -(-window // 2) if shifted else 0
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        trunc_normal_(self.relative_position_bias_table, std=0.01)

    def forward(self, x: Float[Tensor, "B D H W"]) -> Float[Tensor, "B D H W"]:
        """The attended map."""
        rows, columns = x.shape[2], x.shape[3]
        w = min(self.window, rows, columns)  # a map smaller than a window is one
        shift = self.shift if w < max(rows, columns) else 0
        x = x.roll((-shift, -shift), (2, 3)) if shift else x
        windows = x.unflatten(2, (-1, w)).unflatten(4, (-1, w)).permute(0, 2, 4, 3, 5, 1)  # B, rows, columns, w, w, D
        q, k, v = by_heads(self.qkv(windows.reshape(-1, w * w, x.shape[1])), 3, self.heads)
        index = relative_index(w, self.window, x.device)
        bias = self.relative_position_bias_table[index.flatten()].unflatten(0, index.shape).permute(2, 0, 1)
        if shift:
            seam = seams(rows, columns, w, shift, x.device).to(x.dtype)  # windows, places, places
            bias = (bias + seam[:, None]).repeat(len(x), 1, 1, 1)
        made = self.proj(attention(q, k, v, bias.to(q)).transpose(1, 2).flatten(2))
        made = made.reshape(windows.shape).permute(0, 5, 1, 3, 2, 4).reshape(x.shape)
        return made.roll((shift, shift), (2, 3)) if shift else made


@lru_cache(maxsize=8)
def relative_index(window: int, largest: int, device: torch.device) -> Int[Tensor, "N N"]:
    """Which row of a table of biases, made for windows of the largest side, belongs to each pair of places of one."""
    with torch.inference_mode(False):  # kept, and used in training later
        places = torch.stack(torch.meshgrid(*[torch.arange(window, device="cpu")] * 2, indexing="ij")).flatten(1)
        apart = places[:, :, None] - places[:, None] + largest - 1
        return (apart[0] * (2 * largest - 1) + apart[1]).to(device)


@lru_cache(maxsize=32)
def seams(rows: int, columns: int, window: int, shift: int, device: torch.device) -> Float[Tensor, "M N N"]:
    """What is added to attention inside shifted windows: ``_HIDDEN`` between places that were not neighbours."""

    def region(size: int) -> Tensor:
        place = torch.arange(size, device="cpu")
        return (place >= size - window).int() + (place >= size - shift).int()

    with torch.inference_mode(False):  # kept, and used in training later
        number = region(rows)[:, None] * 3 + region(columns)
        windows = number.unflatten(0, (-1, window)).unflatten(2, (-1, window)).transpose(1, 2).reshape(-1, window**2)
        return torch.where(windows[:, None] == windows[:, :, None], 0.0, _HIDDEN).to(device)


class DeformableAttention(nn.Module):
    """Keys and values are read where offsets point that the queries choose (section 3.2); the bias follows them."""

    def __init__(self, width: int, heads: int, groups: int, size: int, kernel: int, reach: float | int) -> None:
        """Builds it.

        Args:
            width: D.
            heads: Divide D.
            groups: Of channels, each with offsets of its own; they divide the heads.
            size: Side of the map in places that the table of biases is for.
            kernel: Side of the convolution that finds offsets.
            reach: Offsets are at most this many places.
        """
        super().__init__()
        self.heads, self.groups, self.reach = heads, groups, reach
        own = width // groups
        self.conv_offset = nn.Sequential(
            nn.Conv2d(own, own, kernel, 1, kernel // 2, groups=own), LayerNorm2d(own, eps=_EPS), nn.GELU(),
            nn.Conv2d(own, 2, 1, bias=False),
        )  # fmt: skip
        self.proj_q, self.proj_k, self.proj_v, self.proj_out = (nn.Conv2d(width, width, 1) for _ in range(4))
        self.rpe_table = nn.Parameter(torch.zeros(heads, 2 * size - 1, 2 * size - 1))
        trunc_normal_(self.rpe_table, std=0.01)

    def forward(self, x: Float[Tensor, "B D H W"]) -> Float[Tensor, "B D H W"]:
        """The attended map."""
        count, (rows, columns) = len(x), x.shape[2:]
        q = self.proj_q(x)
        offset = self.conv_offset(q.reshape(count * self.groups, -1, rows, columns)).tanh()
        middles = _middles(rows, columns, x)
        offset = torch.stack([offset[:, 0] * (1 / rows), offset[:, 1] * (1 / columns)], dim=3)
        places = offset * self.reach + middles  # (y, x) in [-1, 1]
        grouped = x.reshape(count * self.groups, -1, rows, columns)
        read = F.grid_sample(grouped, places.flip(3), mode="bilinear", align_corners=True).reshape(x.shape)
        table = self.rpe_table.repeat(count, 1, 1).unflatten(0, (count * self.groups, -1))
        apart = (middles.reshape(1, -1, 1, 2) - places.reshape(len(places), 1, -1, 2)) / 2
        bias = F.grid_sample(table, apart.flip(3), mode="bilinear", align_corners=True)
        bias = bias.reshape(count, self.heads, rows * columns, -1)
        q, k, v = (
            part.flatten(2).unflatten(1, (self.heads, -1)).transpose(2, 3)
            for part in (q, self.proj_k(read), self.proj_v(read))
        )
        made = attention(q, k, v, bias)
        return self.proj_out(made.transpose(2, 3).reshape(x.shape))


def _middles(rows: int, columns: int, like: Tensor) -> Float[Tensor, "H W 2"]:
    """Middles of places, (y, x); with ``align_corners`` they lie a little inside, as in the authors' first version."""
    y, x = (((torch.arange(n, device=like.device, dtype=like.dtype) + 0.5) / n) * 2 - 1 for n in (rows, columns))
    return torch.stack(torch.meshgrid(y, x, indexing="ij"), dim=2)


class Block(nn.Module):
    """Attention of one kind, then an MLP at every place."""

    def __init__(self, width: int, attention: nn.Module, mlp_ratio: float | int, drop_path: float) -> None:
        """Builds a block.

        Args:
            width: D of the stage.
            attention: Of maps.
            mlp_ratio: Hidden units of the MLP for each of D.
            drop_path: Rate of stochastic depth, in [0, 1).
        """
        super().__init__()
        hidden = int(width * mlp_ratio)
        self.norm1, self.norm2 = LayerNorm2d(width, eps=_EPS), LayerNorm2d(width, eps=_EPS)
        self.attn, self.fc1, self.fc2 = attention, nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.drop_path1, self.drop_path2 = dropped(drop_path), dropped(drop_path)

    def forward(self, x: Float[Tensor, "B D H W"]) -> Float[Tensor, "B D H W"]:
        """One layer."""
        x = x + self.drop_path1(self.attn(self.norm1(x)))
        hidden = F.gelu(self.fc1(self.norm2(x).permute(0, 2, 3, 1)))
        return x + self.drop_path2(self.fc2(hidden).permute(0, 3, 1, 2))


class DeformableTransformer(Network):
    """DAT: local and shifted windows first, deformable attention in the deep stages; the mean of the map is read."""

    num_prefix_tokens = 0

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        in_chans: int = 3,
        num_classes: int = 1000,
        patch_size: int = 4,
        embed_dim: int = 96,
        stages: Sequence[str] = ("LS", "LS", "LDLDLD", "LD"),
        num_heads: Sequence[int] = (3, 6, 12, 24),
        window_sizes: Sequence[int] = (7, 7, 7, 7),
        groups: Sequence[int] = (1, 1, 3, 6),
        mlp_ratio: float | int = 4,
        reach: float | int = 2,
        drop_path_rate: float = 0.0,
    ) -> None:
        """Builds a network; every list has one entry per stage.

        Args:
            img_size: Side of the images that tables of biases are for, in pixels.
            in_chans: C.
            num_classes: Of the classifier; 0 for none.
            patch_size: Side of a patch in pixels.
            embed_dim: Width of the first stage; it doubles from stage to stage.
            stages: Blocks by kind: L attends in windows, S in shifted ones, D where offsets point.
            num_heads: Of attention.
            window_sizes: Sides of windows in places.
            groups: Of channels with offsets of their own.
            mlp_ratio: Hidden units of an MLP for each of a width.
            reach: Of offsets, in places.
            drop_path_rate: Of the last block; it grows linearly from 0 at the first.
        """
        super().__init__()
        size = img_size if isinstance(img_size, int) else img_size[0]
        rates = iter(linear_rates(drop_path_rate, sum(map(len, stages))))
        self.stem = nn.Sequential(
            nn.Conv2d(in_chans, embed_dim, patch_size, patch_size), LayerNorm2d(embed_dim, eps=_EPS)
        )
        self.stages, self.downs, self.feature_info = nn.ModuleList(), nn.ModuleList(), []
        for i, kinds in enumerate(stages):
            width, stride = embed_dim * 2**i, patch_size * 2**i
            if i:
                self.downs.append(
                    nn.Sequential(nn.Conv2d(width // 2, width, 2, 2, bias=False), LayerNorm2d(width, eps=_EPS))
                )
            blocks = [
                Block(
                    width,
                    DeformableAttention(width, num_heads[i], groups[i], size // stride, _OFFSET_KERNELS[i], reach)
                    if kind == "D" else WindowAttention(width, num_heads[i], window_sizes[i], shifted=kind == "S"),
                    mlp_ratio, next(rates),
                )
                for kind in kinds
            ]  # fmt: skip
            self.stages.append(nn.Sequential(*blocks))
            self.feature_info.append({"num_chs": width, "reduction": stride, "module": f"stages.{i}"})
        self.finish(embed_dim * 2 ** (len(stages) - 1), num_classes)

    def init_weights(self) -> None:
        """The usual; the last norm is one of maps."""
        super().init_weights()
        self.norm = LayerNorm2d(self.embed_dim, eps=_EPS)

    def no_weight_decay(self) -> set[str]:
        """Tables of biases."""
        return {name for name, _ in self.named_parameters() if name.endswith("_table")}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Layers by name, for layer decay; what halves a map goes with the last block before it."""
        blocks = [(r"^stages\.(\d+)\.(\d+)", None), (r"^downs\.(\d+)", (99999,)), (r"^norm", (99999,))]
        return {"stem": r"^stem", "blocks": blocks}

    def forward_features(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D h w"]:
        """The normalised map."""
        x = self.stages[0](self.stem(x))
        for down, stage in zip(self.downs, list(self.stages)[1:], strict=True):
            x = stage(down(x))
        return self.norm(x)

    def forward_head(self, x: Float[Tensor, "B D h w"], pre_logits: bool = False) -> Float[Tensor, "B E"]:
        """The mean over places, and what the classifier makes of it."""
        pooled = x.mean(dim=(2, 3))
        return pooled if pre_logits else self.head(pooled)


default_cfgs = generate_default_cfgs({name: described(224, "stem.0") for name in ("dat_tiny", "dat_small")})


@register_model
def dat_tiny(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """DAT-T: 28.3 million parameters."""
    return build_model_with_cfg(DeformableTransformer, "dat_tiny", pretrained, **kwargs)


@register_model
def dat_small(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """DAT-S: 49.7 million parameters."""
    stages = ("LS", "LS", "LD" * 9, "LD")
    return build_model_with_cfg(DeformableTransformer, "dat_small", pretrained, **{"stages": stages, **kwargs})
