"""What is read off networks: attention and frequencies block by block (Park et al. 2023), change under shifts."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

_EPS_DISTANCE, _EPS_INFORMATION, _EPS_AMPLITUDE = 1e-32, 1e-8, 1e-6
"""What the authors' code adds to attention and to amplitudes, so that no logarithm is of zero. The second makes the
information of one-to-one attention .999999 instead of 1."""


def patch_distances(grid: tuple[int, int], patch: int, device: torch.device | None = None) -> Float[Tensor, "N N"]:
    """Euclidean distances between patches, in pixels.

    Args:
        grid: Rows and columns of patches; N of them, row-major.
        patch: Side of one in pixels.
        device: Where to make them.
    """
    rows, columns = grid
    place = torch.cartesian_prod(torch.arange(rows, device=device), torch.arange(columns, device=device)).double()
    return patch * torch.cdist(place, place, compute_mode="donot_use_mm_for_euclid_dist")


def _over_patches(attention: Float[Tensor, "B H T T"], prefix: int, eps: float) -> Float[Tensor, "B H N N"]:
    """Rows over the patches alone, which sum to 1 again."""
    kept = attention[:, :, prefix:, prefix:].double() + eps
    return kept / kept.sum(dim=-1, keepdim=True)


def attention_distance(
    attention: Float[Tensor, "B H T T"], grid: tuple[int, int], patch: int, *, prefix: int
) -> Float[Tensor, "B H"]:
    """How far attention reaches: sum of a x distance, the mean over queries (Park et al. 2023, section 2), in pixels.

    Args:
        attention: Softmax rows of one block, those of class token and registers first.
        grid: Rows and columns of patches.
        patch: Side of one in pixels.
        prefix: Class token and registers, which are left out.
    """
    rows = _over_patches(attention, prefix, _EPS_DISTANCE)
    return (rows * patch_distances(grid, patch, rows.device)).sum(dim=-1).mean(dim=-1)


def attention_information(attention: Float[Tensor, "B H T T"], *, prefix: int) -> Float[Tensor, "B H"]:
    """Normalised mutual information of queries and keys, 0 to 1 (Park et al. 2023, section 2).

    Queries count alike, p(q, k) = a / N; the information is divided by the root of both entropies. 0: all queries
    attend alike, to whatever; 1: every one to a key of its own. Where all attend to one key alone it is 0 / 0, which
    only the smallest numbers decide.

    Args:
        attention: Softmax rows of one block, those of class token and registers first.
        prefix: Class token and registers, which are left out.
    """
    rows = _over_patches(attention, prefix, _EPS_INFORMATION)
    queries, keys = rows.shape[2], rows.mean(dim=2)
    shared = (rows * (rows / keys[:, :, None]).log()).sum(dim=(-2, -1)) / queries
    of_keys = -(keys * keys.log()).sum(dim=-1)
    return shared / (of_keys * math.log(queries)).sqrt()


def amplitudes(features: Float[Tensor, "B D h h"]) -> Float[Tensor, "B F"]:
    """Logarithmic amplitudes along the diagonal of frequencies, less that of the mean (Park et al. 2023, section 3).

    The mean over channels is taken after the logarithm. The first is the mean itself, 0; the last is the highest
    frequency, which figures show. On even grids that is the one before Nyquist's.

    Args:
        features: Of the patches, as a square map.

    Raises:
        ValueError: For a map that is not square.
    """
    if features.shape[2] != features.shape[3]:
        raise ValueError(f"frequencies are compared along a diagonal, but the map is {tuple(features.shape[2:])}")
    found = (torch.fft.fft2(features.double()).abs() + _EPS_AMPLITUDE).log().mean(dim=1)
    half = features.shape[2] // 2
    diagonal = torch.fft.fftshift(found, dim=(1, 2)).diagonal(dim1=1, dim2=2)[:, half:]
    return diagonal - diagonal[:, :1]


def shifted(images: Tensor, pixels: int) -> tuple[Tensor, Tensor]:
    """Images moved down, and to the right; what leaves at one side comes back at the other.

    Args:
        images: [B C H W] of any kind.
        pixels: How far.
    """
    return images.roll(pixels, dims=2), images.roll(pixels, dims=3)


def relative_change(features: Float[Tensor, "I D"], moved: tuple[Float[Tensor, "I D"], ...]) -> Float[Tensor, " I"]:
    """How much features of every image change, as a share of their mean distance between two images.

    Args:
        features: Of images as they are, at least two.
        moved: Of the same images, each moved in another direction; the mean over directions is taken.

    Raises:
        ValueError: Where all images have the same features.
    """
    kept = features.double()
    between = torch.pdist(kept).mean()
    if not between:
        raise ValueError("all images have the same features, so no change can be measured against theirs")
    return torch.stack([(one.double() - kept).norm(dim=1) for one in moved]).mean(dim=0) / between
