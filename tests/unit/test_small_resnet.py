"""The ResNet for small images against what its paper says of it (He et al. 2016, section 4.2)."""

from __future__ import annotations

import pytest
import ssl_vit.models.families  # noqa: F401 - registers the network
import timm
import torch


def small(layers: list[int], channels: list[int]) -> torch.nn.Module:
    return timm.create_model(
        "resnet_small_images",
        layers=layers,
        channels=channels,
        stem_width=channels[0],
        output_stride=32,
        num_classes=10,
    )


@pytest.mark.parametrize(("blocks", "millions"), [(3, 0.27), (5, 0.46), (9, 0.85)])
def test_three_stages_have_the_parameters_of_the_paper(blocks: int, millions: float) -> None:
    network = small([blocks] * 3, [16, 32, 64])
    assert round(sum(p.numel() for p in network.parameters()) / 1e6, 2) == pytest.approx(millions, abs=0.011)
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_four_stages_are_resnet_18() -> None:
    assert sum(p.numel() for p in small([2] * 4, [64, 128, 256, 512]).parameters()) == 11_173_962


@pytest.mark.parametrize(("layers", "channels"), [([1, 1], [8, 8]), ([1] * 5, [8] * 5), ([1] * 3, [8] * 4)])
def test_other_numbers_of_stages_are_refused(layers: list[int], channels: list[int]) -> None:
    with pytest.raises(ValueError, match="three or four stages"):
        small(layers, channels)
