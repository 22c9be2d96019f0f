"""ResNet for small images (He et al. 2016, section 4.2): timm's, behind a 3x3 convolution of single steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.resnet import BasicBlock, ResNet
from torch import nn

from ssl_vit.models.families.manners import described


class SmallImageResNet(ResNet):
    """Basic blocks at 1, 1/2 and twice 1/4 of the side; a fourth stage is dilated instead of halved again."""

    def __init__(
        self, layers: Sequence[int], channels: Sequence[int], in_chans: int = 3, stem_width: int = 64, **kwargs: Any
    ) -> None:
        """timm's, with another stem.

        Args:
            layers: Blocks of the four stages, or of three.
            channels: Their widths.
            in_chans: C of the images.
            stem_width: Channels of the first convolution, even.
            **kwargs: timm's.

        Raises:
            ValueError: Of other numbers of stages.
        """
        if len(layers) not in (3, 4) or len(layers) != len(channels):
            raise ValueError(
                f"layers and channels are of three or four stages, not of {len(layers)} and {len(channels)}"
            )
        block: Any = BasicBlock
        # timm's plain stem is 64 wide; what follows its deep one takes any even width.
        own = {"output_stride": 16, **kwargs, "stem_type": "deep", "stem_width": stem_width // 2}
        super().__init__(block, tuple(layers), in_chans=in_chans, channels=tuple(channels), **own)
        if len(layers) == 3:  # as He et al. have them for CIFAR-10 (section 4.2); timm asks for a fourth
            self.layer4 = nn.Sequential()
        device, dtype = kwargs.get("device"), kwargs.get("dtype")
        self.conv1 = nn.Conv2d(in_chans, stem_width, 3, padding=1, bias=False, device=device, dtype=dtype)
        nn.init.kaiming_normal_(self.conv1.weight, mode="fan_out", nonlinearity="relu")
        self.maxpool = nn.Identity()
        for stage in self.feature_info:
            stage["reduction"] = max(1, int(stage["reduction"]) // 4)


default_cfgs = generate_default_cfgs(
    {"resnet_small_images": described(32, "conv1", fixed_input_size=False, classifier="fc")}
)


@register_model
def resnet_small_images(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """Eight basic blocks; ``layers`` and ``channels`` say how many and how wide."""
    sizes = {"layers": (2, 2, 2, 2), "channels": (16, 24, 32, 48)}
    return build_model_with_cfg(SmallImageResNet, "resnet_small_images", pretrained, **{**sizes, **kwargs})
