"""Exports a network for timm, transformers, ONNX or TorchScript, with a model card, and proves that it is the same.

ssl-vit export --backbone RUN --format onnx
ssl-vit export --classifier RUN --format hf --push OWNER/NAME
"""

from __future__ import annotations

from pathlib import Path

from ssl_vit.configs import ExportRecipe
from ssl_vit.core.errors import UserError
from ssl_vit.runs.networks import classifier_folder, find_network
from ssl_vit.script import run_script


def check(cfg: ExportRecipe) -> None:
    """What can be told before anything is loaded.

    Raises:
        UserError: Unless exactly one network is named, and is there.
    """
    if bool(cfg.backbone) == bool(cfg.classifier):
        raise UserError("name one network: --backbone RUN (vectors) or --classifier RUN (answers)")
    if cfg.backbone:
        find_network(cfg.backbone)
    else:
        classifier_folder(cfg.classifier)


def main(cfg: ExportRecipe) -> Path:
    """A run in, a folder for another library out.

    Args:
        cfg: What ``--help`` lists.

    Returns:
        The folder.
    """
    check(cfg)
    from ssl_vit.exports.formats import export

    return export(cfg)


if __name__ == "__main__":
    run_script(main, ExportRecipe, __doc__ or "")
