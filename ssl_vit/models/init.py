"""One initialisation for every network of the project, so that a comparison differs in its training alone."""

from __future__ import annotations

from torch import nn


def init_weights(module: nn.Module) -> None:
    """Xavier-uniform weights, zero biases, class, register and mask tokens of deviation .02 (MAE, appendix A.1).

    At small widths this is also what training from scratch needs: timm's deviation of .02 everywhere is made for
    hundreds of dimensions. Position embeddings stay as they are.

    Args:
        module: A network; changed in place, from torch's global generator.
    """
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Conv2d):  # the patch projection, seen as the linear map it is
            nn.init.xavier_uniform_(part.weight.view(len(part.weight), -1))
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    for name, parameter in module.named_parameters():
        if name.endswith(("cls_token", "reg_token", "mask_token")):
            nn.init.normal_(parameter, std=0.02)
