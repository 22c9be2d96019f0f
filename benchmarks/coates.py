"""Features without training by gradients: k-means of whitened patches (Coates, Ng and Lee 2011), as a reference."""

from __future__ import annotations

import time
from typing import Any

PATCH, CENTRES, SAMPLES, ROUNDS = 6, 800, 200_000, 40
"""Side of a patch in pixels, words, patches they are found from, and passes of k-means."""


def kmeans_extractor(train: Any, seed: int) -> tuple[Any, float]:
    """Learns the words on the training images without labels.

    Every patch is brought to zero mean and unit deviation (plus 10 of 255 grey levels squared), whitened, and answers
    with how much nearer than average each word is (the paper's "triangle"); answers are summed over quarters.

    Args:
        train: The images.
        seed: Of patches and first words.

    Returns:
        An extractor, and the minutes it took.
    """
    import numpy as np
    import torch
    from sklearn.cluster import MiniBatchKMeans
    from ssl_vit.data.loading.loader import chosen_images
    from torch.nn.functional import unfold

    began, rng = time.monotonic(), np.random.default_rng(seed)
    images = rng.choice(len(train), min(len(train), 20_000), replace=False)
    patches = []
    grey = 255.0 / (2**train.form.bits - 1)
    for pixels in chosen_images(train, images, torch.device("cpu"))[0].images:
        columns = unfold(pixels[None].float() * grey, PATCH)[0].T
        patches.append(columns[torch.from_numpy(rng.choice(len(columns), SAMPLES // len(images), replace=False))])
    found = _even(torch.cat(patches))
    mean = found.mean(0)
    values, vectors = torch.linalg.eigh((found - mean).T @ (found - mean) / len(found))
    whiten = vectors @ torch.diag((values + 0.1).rsqrt()) @ vectors.T
    words: Any = MiniBatchKMeans(CENTRES, batch_size=4096, max_iter=ROUNDS, n_init="auto", random_state=seed)
    centres = torch.from_numpy(words.fit(((found - mean) @ whiten).numpy()).cluster_centers_).float()

    def extract(batch: Any) -> torch.Tensor:
        rows = []
        for part in (batch.images.float() * grey).split(32):
            columns = unfold(part, PATCH).transpose(1, 2)  # [B, places, values]
            white = (_even(columns) - mean) @ whiten
            apart = torch.cdist(white, centres.expand(len(white), -1, -1))
            answers = (apart.mean(2, keepdim=True) - apart).clamp(min=0)
            side = round(answers.shape[1] ** 0.5)
            squares = answers.transpose(1, 2).unflatten(2, (side, side))
            half = side // 2 + side % 2
            quarters = [
                squares[:, :, a : a + half, b : b + half].sum((2, 3))
                for a in (0, side - half)
                for b in (0, side - half)
            ]
            rows.append(torch.cat(quarters, 1))
        return torch.cat(rows)

    return extract, (time.monotonic() - began) / 60


def _even(patches: Any) -> Any:
    """Patches [..., values] of zero mean and unit deviation."""
    patches = patches - patches.mean(-1, keepdim=True)
    return patches / (patches.var(-1, keepdim=True) + 10.0).sqrt()
