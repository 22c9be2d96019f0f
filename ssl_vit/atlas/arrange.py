"""From vectors to places on a map."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float

from ssl_vit.core.errors import UserError
from ssl_vit.evaluation.nearest import neighbours

Way = Literal["umap", "tsne", "pca"]

ARRANGED = 3000
"""Images that t-SNE arranges at most: its time grows faster than they do."""
_COMPONENTS = 50  # principal components that t-SNE and k-means see, as van der Maaten's own program
_PERPLEXITY = 30.0
_ROUNDS = 600  # of t-SNE, 250 of them exaggerated; its cost hardly falls after that
_FEWEST = 8  # images below which neighbours say nothing, and two components say all
_NEIGHBOURS = 15  # that UMAP keeps together, itself among them
_BETWEEN = 5  # arranged images that one that was not is put between
_SHARP = 0.02  # cosine that makes the pull of a neighbour e times smaller


def chosen_way(asked: Literal["auto", "umap", "tsne", "pca"], images: int) -> Way:
    """How the map is made.

    Args:
        asked: ``--atlas.map``.
        images: How many there are.

    Raises:
        UserError: For UMAP where it is not installed.
    """
    installed = find_spec("umap") is not None
    if asked == "umap" and not installed:
        raise UserError("--atlas.map umap needs umap-learn: pip install 'ssl_vit[umap]', or give tsne or pca")
    if images < _FEWEST:
        return "pca"
    if asked == "auto":
        return "umap" if installed else "tsne"
    return asked


def components(x: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n d"]:
    """Vectors of length one, turned to their own axes: up to 50 principal components, the largest first.

    Distances between these are those of cosine similarity, which neighbours are found by.

    Args:
        x: One row per image.
    """
    from sklearn.decomposition import PCA

    if len(x) == 1:
        return np.zeros((1, 1), dtype=np.float32)
    unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    count = min(_COMPONENTS, *unit.shape)
    found = PCA(count, svd_solver="randomized", random_state=0).fit_transform(unit.astype(np.float32))
    return np.asarray(found, dtype=np.float32)


def arrange(parts: Float[np.ndarray, "n d"], way: Way) -> tuple[Float[np.ndarray, "n 2"], str]:
    """Places of all images in a square of side 1, the same for the same vectors, and how they came about.

    Args:
        parts: As ``components`` makes them.
        way: How the map is made.
    """
    count = len(parts)
    if way == "umap":
        return _squared(_umap(parts)), "UMAP"
    if way == "pca" or count < _FEWEST:
        flat = np.zeros((count, 2), dtype=np.float32)
        flat[:, : min(2, parts.shape[1])] = parts[:, :2]
        return _squared(flat), "the two largest principal components"
    chosen = np.unique(np.linspace(0, count - 1, min(count, ARRANGED)).astype(np.int64))
    placed = _tsne(parts[chosen])
    if len(chosen) == count:
        return _squared(placed), "t-SNE"
    found = _between(parts, chosen, placed)
    return _squared(found), f"t-SNE of {len(chosen):,} images, and the others between those they resemble most"


def _tsne(parts: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n 2"]:
    from sklearn.manifold import TSNE

    start = parts[:, :2] if parts.shape[1] > 1 else np.repeat(parts, 2, axis=1)
    start = 1e-4 * start / max(float(start[:, 0].std()), 1e-12)
    perplexity = min(_PERPLEXITY, (len(parts) - 1) / 3)
    made: Any = TSNE  # its annotations know neither arrays nor whole numbers
    return made(perplexity=perplexity, init=start, max_iter=_ROUNDS, random_state=0).fit_transform(parts)


def _umap(parts: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n 2"]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TensorFlow, which is not there and not needed, and of its own versions
        import umap  # pyright: ignore[reportMissingImports] - the extra

        # Exact neighbours of ours: its own search compiles for a minute before it begins.
        x = torch.from_numpy(parts)
        value, place = (t.numpy() for t in neighbours(x, x, min(_NEIGHBOURS, len(parts))))
        made: Any = umap.UMAP(
            n_neighbors=value.shape[1], metric="cosine", precomputed_knn=(place, (1 - value).clip(0), None),
            init="pca", random_state=0, n_jobs=1,
        )  # fmt: skip
        return made.fit_transform(parts)


def _between(
    parts: Float[np.ndarray, "n d"], chosen: np.ndarray, placed: Float[np.ndarray, "m 2"]
) -> Float[np.ndarray, "n 2"]:
    """Every image at the mean of the arranged images it resembles most, nearer ones pulling more."""
    bank = torch.from_numpy(parts[chosen])
    value, place = (t.numpy() for t in neighbours(bank, torch.from_numpy(parts), min(_BETWEEN, len(chosen))))
    pull = np.exp((value - value[:, :1]) / _SHARP)
    found = (pull[:, :, None] * placed[place]).sum(axis=1) / pull.sum(axis=1, keepdims=True)
    found[chosen] = placed
    return found.astype(np.float32)


def _squared(places: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
    """Moved and scaled, alike in both directions, into a square of side 1."""
    low, high = places.min(axis=0), places.max(axis=0)
    side = float((high - low).max()) or 1.0
    return (0.5 + (places - (low + high) / 2) / side).clip(0, 1).astype(np.float32)
