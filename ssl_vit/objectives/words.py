"""Visual words: the centres of a k-means clustering of patches, fitted once on images of the pool and kept."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import safetensors.torch
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ssl_vit.core import sums
from ssl_vit.core.files import write_bytes_atomically
from ssl_vit.core.randomness import make_key, permutation, uniform
from ssl_vit.data.images import ImageSet
from ssl_vit.data.loading.loader import chosen_images
from ssl_vit.data.scale import PixelScale
from ssl_vit.models.backbone import TokenBackbone
from ssl_vit.objectives.mae import normalise_targets, pixel_patches
from ssl_vit.views.evaluation import eval_images

FILE = "words.safetensors"
"""In the run's directory, and beside its backbone: ``words`` [V P] in single precision, patches flattened (row, column,
channel) of normalised pixels."""
_PER_WORD = 32
"""Patches that words are found from, for every word."""
_MOST_IMAGES = 2000
_ROUNDS = 20


def nearest(patches: Float[Tensor, "*B P"], words: Float[Tensor, "V P"]) -> Int[Tensor, "*B"]:
    """The word of every patch: the one with the smallest squared distance, the first of equal ones.

    Args:
        patches: In the precision that distances are computed in.
        words: Centres.
    """
    # |p - w|^2 without what is the same for all words.
    return (words.square().sum(dim=1) / 2 - patches @ words.T).argmin(dim=-1)


def fit_words(patches: Float[Tensor, "n P"], count: int, seed: int) -> Float[Tensor, "V P"]:
    """Lloyd's k-means; a word that no patch is nearest to moves to the patch that is farthest from its own.

    Args:
        patches: At least one, in double precision.
        count: V, words. Where there are fewer different patches, some words stay equal and all but the first unused.
        seed: Of the run: says where it begins.
    """
    words = _spread(patches, count, seed)
    found: Tensor | None = None
    for _ in range(_ROUNDS):
        before, found = found, nearest(patches, words)
        if before is not None and torch.equal(before, found):
            break
        sizes = torch.bincount(found, minlength=count)
        sums = torch.zeros_like(words).index_add_(0, found, patches)
        apart = (patches - words[found]).square().sum(dim=1)
        words = torch.where(sizes[:, None] > 0, sums / sizes.clamp(min=1)[:, None], words)
        empty = (sizes == 0).nonzero()[:, 0]
        worst = apart.argsort(descending=True, stable=True)[: len(empty)]
        worst = worst[apart[worst] > 0]
        words[empty[: len(worst)]] = patches[worst]
    return words


def _spread(patches: Float[Tensor, "n P"], count: int, seed: int) -> Float[Tensor, "V P"]:
    """Where k-means begins (Arthur and Vassilvitskii 2007, k-means++): far patches are more likely to be taken."""
    u = uniform(make_key(seed, "words"), count)[0].to(patches.dtype)
    chosen = int(u[0] * len(patches))
    words, nearest_one = [patches[chosen]], torch.full((len(patches),), torch.inf, dtype=patches.dtype)
    for place in u[1:]:
        nearest_one = torch.minimum(nearest_one, (patches - words[-1]).square().sum(dim=1))
        reached = nearest_one.cumsum(dim=0)
        chosen = int(torch.searchsorted(reached, place * reached[-1], right=True).clamp(max=len(patches) - 1))
        words.append(patches[chosen])
    return torch.stack(words)


def patches_of(patches: Float[Tensor, "*B P"], norm_pix: bool) -> Float[Tensor, "*B P"]:
    """Patches as words are of them: as they are, or each by its own mean and deviation."""
    return normalise_targets(patches) if norm_pix else patches


def words_of_images(
    images: ImageSet, scale: PixelScale, backbone: TokenBackbone, *, count: int, norm_pix: bool, seed: int
) -> Float[Tensor, "V P"]:
    """Words of images in the view of evaluation: which images, and which of their patches, the seed says.

    Args:
        images: The pool.
        scale: Pixel statistics.
        backbone: Whose patches they are.
        count: V, words.
        norm_pix: Normalise every patch.
        seed: Of the run.
    """
    per_image, wanted = backbone.grid[0] * backbone.grid[1], _PER_WORD * count
    some = min(len(images), _MOST_IMAGES, ceil(2 * wanted / per_image))
    chosen = permutation(seed, "words-images", n=len(images))[:some].sort().values
    batch, _ = chosen_images(images, chosen.numpy(), torch.device("cpu"))
    pixels = eval_images(batch, scale, backbone.img_size, torch.float64)
    patches = pixel_patches(pixels, backbone.patch_size).flatten(0, 1)
    patches = patches[permutation(seed, "words-patches", n=len(patches))[:wanted].sort().values]
    return fit_words(patches_of(patches, norm_pix), count, seed)


def save_words(folder: Path, words: Float[Tensor, "V P"]) -> None:
    """Keeps words in a run's directory, and their hash."""
    write_bytes_atomically(folder / FILE, safetensors.torch.save({"words": words.float().contiguous()}))
    sums.note(folder, [FILE])


def load_words(folder: Path) -> Float[Tensor, "V P"] | None:
    """The words of a run; None where it has none."""
    return safetensors.torch.load_file(folder / FILE)["words"].float() if (folder / FILE).is_file() else None
