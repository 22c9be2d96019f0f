"""From a network and images to an atlas, saying what it does meanwhile."""

from __future__ import annotations

import time
from pathlib import Path

from ssl_vit.atlas.arrange import chosen_way
from ssl_vit.atlas.content import Atlas, survey
from ssl_vit.atlas.page import page
from ssl_vit.configs import AtlasRecipe
from ssl_vit.core.files import write_atomically
from ssl_vit.evaluation.embedding import Embedded, embed_images, in_words
from ssl_vit.exports.timm_folder import Exported
from ssl_vit.released.starts import load_start
from ssl_vit.training import launch


def make_atlas(cfg: AtlasRecipe, path: Path) -> Atlas:
    """Computes vectors, or takes those that are kept, and writes the page.

    Args:
        cfg: What ``--help`` lists.
        path: The page's file.

    Raises:
        UserError: For images that do not fit the network, and for a map that is not installed.
    """
    chosen_way(cfg.atlas.map, 0)  # before anything is computed
    exported, accelerator = load_start(cfg.backbone), launch.join("fp32")
    launch.use_cores(accelerator, exported.size)
    began = time.monotonic()
    found = embed_images(exported, cfg.data, cfg.embed, device=accelerator.device)
    print(f"features  {in_words(found)}; {time.monotonic() - began:.0f} s", flush=True)
    began = time.monotonic()
    made = survey(found, cfg.atlas, cfg.data.workers)
    source = Path(found.images.name).name or found.images.name
    title = f"{len(found.images):,} images from {source}"
    write_atomically(path, page(made, title=title, seen_by=_seen_by(exported, found), notes=_notes(made, found)))
    print(f"map       {made.map_words}; {made.clusters.words}; {time.monotonic() - began:.0f} s", flush=True)
    print(f"{path}: {len(made.copies):,} group(s) of likely copies; outliers, neighbours and clusters are in the page")
    return made


def _seen_by(exported: Exported, found: Embedded) -> str:
    what = str(exported.about.get("objective", "")) or exported.backbone.architecture
    folder = exported.folder
    run = folder.parent.name if folder.name == "backbone" else folder.name
    return f"As {what} sees them: {found.x.shape[1]} numbers per image from {run or folder.resolve().parent.name}."


def _notes(made: Atlas, found: Embedded) -> list[str]:
    notes: list[str] = []
    if len(made.pictured) < len(found.images):
        notes.append(
            f"The map is a density of all {len(found.images):,} images; {len(made.pictured):,} of them are pictures: "
            "those that stand out, and an even sample. Neighbours are looked for among these."
        )
    if found.known is not None and found.known.kind == "multilabel":
        notes.append("An image has the colour of its rarest label.")
    if found.known is not None and found.known.kind == "regression" and len(found.known.names) > 1:
        notes.append(f"Colours show {found.known.names[0]}.")
    if found.unreadable:
        notes.append(f"{len(found.unreadable):,} images could not be read and are left out.")
    return notes
