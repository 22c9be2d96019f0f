"""All that an atlas shows, as numbers and words, before it becomes a page."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from ssl_vit.atlas.arrange import arrange, chosen_way, components
from ssl_vit.atlas.findings import NEAR, Contradicted, Copies, Outlier, contradicted, copies, outliers
from ssl_vit.atlas.groups import Clusters, clusters
from ssl_vit.atlas.pictures import COLUMNS, Sheets, draw_sheets
from ssl_vit.configs import AtlasConfig
from ssl_vit.data.images import ImageSet
from ssl_vit.data.sources.known import KnownLabels
from ssl_vit.data.targets import strata
from ssl_vit.evaluation.embedding import Embedded
from ssl_vit.evaluation.nearest import neighbours

FIRST = 48
"""Outliers, contradicted labels and groups of copies that the page lists."""
_TOGETHER = 12  # copies of one picture that it shows
_CENTRAL = 12  # images that stand for a cluster
_PLACES = 2**16 - 1  # steps of the map's side


@dataclass(frozen=True)
class Atlas:
    """What the page says and draws; positions count all embedded images."""

    images: ImageSet
    known: KnownLabels | None
    places: Float[np.ndarray, "n 2"]
    """On the map, in a square of side 1."""
    map_words: str
    clusters: Clusters
    copies: list[Copies]
    outliers: list[Outlier]
    contradicted: list[Contradicted]
    pictured: Int[np.ndarray, " m"]
    """Images that the page holds as pictures."""
    near: Int[np.ndarray, "m k"]
    """Of every pictured image the nearest others among them, as places in ``pictured``."""
    sheets: Sheets


def nearest_others(x: Float[np.ndarray, "n D"], most: int) -> tuple[Float[np.ndarray, "n k"], Int[np.ndarray, "n k"]]:
    """Cosines and positions of every image's nearest others, the nearest first.

    Args:
        x: One row per image.
        most: How many; no more than there are others.
    """
    bank = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
    most = min(most, len(x) - 1)
    value, place = (t.numpy() for t in neighbours(bank, bank, most + 1))
    itself = place == np.arange(len(x))[:, None]
    itself[~itself.any(axis=1), -1] = True  # of many copies, an image may not be among its own nearest
    return value[~itself].reshape(len(x), most), place[~itself].reshape(len(x), most)


def survey(found: Embedded, cfg: AtlasConfig, workers: int | None) -> Atlas:
    """Arranges, compares and draws images.

    Args:
        found: Their vectors.
        cfg: What the page shows.
        workers: Processes that decode; None chooses.
    """
    images, known, count = found.images, found.known, len(found.x)
    way = chosen_way(cfg.map, count)
    parts = components(found.x)
    places, words = arrange(parts, way)
    grouped = clusters(parts, cfg.clusters, _CENTRAL)
    all_pictured = count <= cfg.pictures
    similarity, near = nearest_others(found.x, max(NEAR, cfg.neighbours if all_pictured else 0))
    alike = copies(images, workers)
    alone, against = outliers(similarity, min(FIRST, count)), contradicted(known, near, FIRST)
    pictured = np.arange(count)
    if not all_pictured:
        first = [i for group in alike[:FIRST] for i in group.images[:_TOGETHER]]
        first += [one.image for one in (*alone, *against)] + [i for some in grouped.central for i in some]
        pictured = _with_a_sample(np.array(first, dtype=np.int64), count, cfg.pictures)
        _, near = nearest_others(found.x[pictured], cfg.neighbours)
    sheets = draw_sheets(images, pictured, workers)
    return Atlas(
        images, known, places, words, grouped, alike, alone, against, pictured, near[:, : cfg.neighbours], sheets
    )


def _with_a_sample(first: Int[np.ndarray, " f"], count: int, most: int) -> Int[np.ndarray, " m"]:
    """These images, as far as they go, and an even sample of the others; ascending."""
    kept = first[np.sort(np.unique(first, return_index=True)[1])][:most]
    others = np.setdiff1d(np.arange(count), kept)
    sampled = (
        others[np.unique(np.linspace(0, len(others) - 1, most - len(kept)).astype(np.int64))] if len(others) else []
    )
    return np.unique(np.concatenate([kept, np.asarray(sampled, dtype=np.int64)]))


def data(atlas: Atlas) -> dict[str, Any]:
    """What the page's script reads: images that are pictured come first, then those that are only places.

    Args:
        atlas: What to show.
    """
    images, pictured = atlas.images, atlas.pictured
    order = np.concatenate([pictured, np.setdiff1d(np.arange(len(images)), pictured)])
    number = np.full(len(images), -1, dtype=np.int64)
    number[pictured] = np.arange(len(pictured))
    names = [images.where(int(i)) for i in pictured]
    folder = _common_folder(names)
    shown = {
        "count": len(images),
        "places": _packed(np.rint(atlas.places[order] * _PLACES), np.uint16),
        "cluster": _packed(atlas.clusters.number[order], np.uint8),
        "names": [name[len(folder) :] for name in names],
        "folder": folder,
        "near": _packed(atlas.near, np.uint16),
        "neighbours": atlas.near.shape[1],
        "side": atlas.sheets.side, "columns": COLUMNS, "sizes": _packed(atlas.sheets.sizes, np.uint8),
        "sheets": [base64.b64encode(file).decode() for file in atlas.sheets.files],
        **_labels(atlas, order),
    }  # fmt: skip

    def numbers(positions: Any) -> list[int]:
        return [int(number[i]) for i in positions if number[i] >= 0]

    return shown | {
        "copies": [
            {"images": numbers(c.images[:_TOGETHER]), "of": len(c.images), "exact": c.exact, "change": c.change,
             "distance": round(c.distance, 3)}
            for c in atlas.copies[:FIRST]
        ],
        "outliers": [[int(number[o.image]), round(o.times, 2)] for o in atlas.outliers if number[o.image] >= 0],
        "contradicted": [
            [int(number[c.image]), c.label, c.others, c.votes, c.of]
            for c in atlas.contradicted if number[c.image] >= 0
        ],
        "clusters": [
            {"size": size, "central": numbers(central)}
            for size, central in zip(
                np.bincount(atlas.clusters.number).tolist(), atlas.clusters.central, strict=True
            )
        ],
    }  # fmt: skip


def _labels(atlas: Atlas, order: np.ndarray) -> dict[str, Any]:
    """Colours and words of labels: a class, the rarest of several labels, or the first number."""
    known = atlas.known
    if known is None:
        return {"kind": None}
    values, given = known.values[order], known.given[order]
    columns = list(known.subset(atlas.pictured).columns().values())
    texts = [
        "" if row[0] is None else ", ".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in row)
        for row in zip(*columns, strict=True)
    ]
    told: dict[str, Any] = {"kind": known.kind, "labels": list(known.names), "texts": texts}
    if known.kind == "regression":
        return told | {"value": _packed(values[:, 0], np.float32)}
    number = np.full(len(order), -1)
    number[given] = strata(values[given], known.kind)
    if known.kind == "multilabel":
        told["labels"].append("(none of them)")
    return told | {"label": _packed(number, np.int16)}


def _packed(values: np.ndarray, kind: type[np.generic]) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode()


def _common_folder(names: list[str]) -> str:
    """What all names begin with, up to a slash: the page says it once."""
    parents = {str(Path(name).parent) for name in names}
    if not names or any("/" not in name for name in names):
        return ""
    first, last = min(parents), max(parents)
    shared = []
    for one, other in zip(first.split("/"), last.split("/"), strict=False):
        if one != other:
            break
        shared.append(one)
    return "/".join(shared) + "/" if shared else ""
