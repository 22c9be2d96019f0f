"""Features: in parts where memory is short, in bf16 close to single precision, each of them once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ssl_vit.configs import DataConfig, LabelledDataConfig, ResolvedModel
from ssl_vit.core.errors import UserError
from ssl_vit.data.loading.loader import Batch
from ssl_vit.data.scale import PixelScale
from ssl_vit.data.sources.opening import open_labelled
from ssl_vit.evaluation.features import Extractor, backbone_extractor, extract_features, images_at_once, pays_to_compile
from ssl_vit.models.backbone import Backbone
from ssl_vit.models.build import build_backbone
from torch import Tensor

CPU, SCALE = torch.device("cpu"), PixelScale((0.3,), (0.4,), 8)
TRAIN = open_labelled(DataConfig(), LabelledDataConfig()).train.subset(np.arange(50))


def network() -> Backbone:
    torch.manual_seed(0)
    return build_backbone(ResolvedModel("vit_tiny_patch16_224", 8, 2, 16, 3, 2, "sincos", "cls"), 1)


def extractor(**options: bool) -> Extractor:
    return backbone_extractor(network(), SCALE, size=8, pool="cls", device=CPU, **options)


class Limited:
    """Has memory for so many images at once."""

    def __init__(self, most: int) -> None:
        self.inner, self.most, self.tried = extractor(), most, []

    def __call__(self, batch: Batch) -> Tensor:
        self.tried.append(len(batch.images))
        if len(batch.images) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.inner(batch)


def test_too_large_batches_are_halved_once_and_lose_nothing() -> None:
    whole = extract_features(extractor(), TRAIN, batch_size=32, device=CPU)
    limited = Limited(9)
    parts = extract_features(limited, TRAIN, batch_size=32, device=CPU)
    assert np.allclose(parts.x, whole.x, rtol=1e-4, atol=1e-5)
    assert np.array_equal(parts.index, np.arange(50))
    assert np.array_equal(parts.labels, whole.labels)
    assert limited.tried == [32, 16, 8, 8, 8, 8, 8, 8, 2]  # 32 images, then 18: what was learnt is kept


def test_one_image_that_does_not_fit_is_said_and_other_failures_are_not_hidden() -> None:
    with pytest.raises(UserError, match="single image"):
        extract_features(Limited(0), TRAIN, batch_size=32, device=CPU)

    def broken(batch: Batch) -> Tensor:
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        extract_features(broken, TRAIN, batch_size=32, device=CPU)


def test_bf16_is_close_and_returned_in_single_precision() -> None:
    exact, rounded = (extract_features(extractor(bf16=b), TRAIN, batch_size=32, device=CPU).x for b in (False, True))
    assert rounded.dtype == np.float32
    error = np.linalg.norm(rounded - exact, axis=1) / np.linalg.norm(exact, axis=1)
    assert 1e-5 < error.max() < 0.02


def test_a_compiled_network_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(torch, "compile", lambda f: asked.append(f) or f)  # compiling itself takes a minute
    found = extract_features(extractor(compiled=True), TRAIN, batch_size=49, device=CPU)
    assert len(asked) == 1
    assert np.allclose(found.x, extract_features(extractor(), TRAIN, batch_size=49, device=CPU).x)


def test_defaults_depend_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert [images_at_once(None, size, CPU) for size in (8, 32, 224)] == [256, 64, 64]
    assert [images_at_once(None, size, gpu) for size in (8, 224, 512)] == [4096, 334, 256]
    assert images_at_once(7, 224, gpu) == 7
    assert not pays_to_compile(None, 10**6, CPU)
    assert [pays_to_compile(None, images, gpu) for images in (10**4, 10**6)] == [False, True]
    assert pays_to_compile(True, 1, CPU)
    assert not pays_to_compile(False, 10**6, gpu)
