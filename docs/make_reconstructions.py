"""Makes docs/reconstructions.png, the README's first picture, and its page: ``python docs/make_reconstructions.py``.

The two photographs that scikit-learn ships are parted: the left two thirds of each are cut into overlapping tiles to
pre-train on, the right thirds into tiles that the network has never seen, which are drawn. Nothing is downloaded.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
import yaml
from PIL import Image
from sklearn.datasets import load_sample_images

from ssl_vit.configs import DataConfig, from_dict
from ssl_vit.data.scale import measure_scale
from ssl_vit.data.sources.opening import open_images
from ssl_vit.figures.reconstructions import save_reconstructions
from ssl_vit.methods import METHODS
from ssl_vit.methods.mae import MAERecipe
from ssl_vit.methods.method import imported
from ssl_vit.models.build import build_backbone
from ssl_vit.runs.provenance import commit, hardware, versions
from ssl_vit.training.checkpoint import load_checkpoint
from ssl_vit.training.forecast import network_of

DOCS, ROOT = Path(__file__).parent, Path(__file__).parents[1]
SIDE, STRIDE = 96, 12
"""Of a tile to train on, and from one to the next, in pixels; those that are drawn are 64 pixels."""
OPTIONS = (
    "--data.path tiles/train --model.name vit_mini --model.img_size 64 --model.patch_size 8 "
    "--fit.batch_size 64 --fit.epochs 60 --optim.base_lr 2e-3 --mae.norm_pix false --mae.decoder_width 128 "
    "--mae.decoder_depth 2 --run.dir run"
)
PAGE = """# docs/reconstructions.png

Eight tiles of 64 x 64 pixels that the network has not seen, the quarter of their patches that it is given, and what it
makes of the rest. It was pre-trained for {steps:,} steps on {tiles:,} overlapping tiles of the left two thirds of
scikit-learn's two photographs; the picture shows tiles of the right thirds. The predicted pixels are drawn as they are.

- command: `python docs/make_reconstructions.py FOLDER`, which runs `ssl-vit mae {options}`
- commit: {commit}
- versions: {versions}
- hardware: {hardware}
- photographs: china.jpg by danielbuechele and flower.jpg by vultilion (Flickr), both CC BY 2.0, cut into tiles
"""


def cut(place: Path) -> int:
    """Writes the tiles; how many there are to train on."""
    count = 0
    for name, photo in zip(("china", "flower"), load_sample_images().images, strict=True):
        edge = photo.shape[1] * 2 // 3
        for part, pixels, side, stride in (
            ("train", photo[:, :edge], SIDE, STRIDE),
            ("shown", photo[:, edge:], 64, 64),
        ):
            (place / part).mkdir(parents=True, exist_ok=True)
            for top in range(0, pixels.shape[0] - side + 1, stride):
                for left in range(0, pixels.shape[1] - side + 1, stride):
                    tile = np.ascontiguousarray(pixels[top : top + side, left : left + side])
                    Image.fromarray(tile).save(place / part / f"{name}-{top:03d}-{left:03d}.png")
                    count += part == "train"
    return count


def draw(folder: Path, path: Path) -> int:
    """Draws tiles with the whole network of a run's last checkpoint; the steps it was trained for."""
    method, tiles = METHODS["mae"], folder / "tiles"
    pool, images = (open_images(DataConfig(path=str(tiles / part))) for part in ("train", "shown"))
    given = from_dict(MAERecipe, yaml.safe_load((folder / "run" / "config.yaml").read_text()))
    cfg = method.resolve(given, *network_of(method, given, len(pool), pool.sizes.short_side))
    scale = measure_scale(pool)
    objective = imported(method.build)(cfg, build_backbone(cfg.model, 3), scale, torch.float32).objective
    state = load_checkpoint(folder / "run" / "checkpoints")
    assert state is not None
    objective.load_state_dict(state["objective"])
    save_reconstructions(objective, images.on_canvas(None, cfg.model.img_size), scale, path, cfg)
    return int(state["step"])


def main(folder: Path) -> None:
    """Tiles, a run and the picture."""
    tiles = cut(folder / "tiles")
    subprocess.run([sys.executable, ROOT / "recipes/mae.py", *shlex.split(OPTIONS)], cwd=folder, check=True)
    steps = draw(folder, DOCS / "reconstructions.png")
    found, machine = versions(), hardware()
    told = ", ".join(f"{name} {found[name]}" for name in ("python", "torch", "timm", "scikit-learn"))
    computed = f"one thread of {machine['cpu']}"
    page = PAGE.format(steps=steps, tiles=tiles, options=OPTIONS, commit=commit(), versions=told, hardware=computed)
    (DOCS / "reconstructions.md").write_text(page)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
