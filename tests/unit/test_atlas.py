"""The parts of an atlas: places, clusters, what stands out, pictures, the page."""

from __future__ import annotations

import base64
import json
import re
from importlib.util import find_spec

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from ssl_vit.atlas.arrange import ARRANGED, arrange, chosen_way, components
from ssl_vit.atlas.content import data, nearest_others, survey
from ssl_vit.atlas.figure import _classes
from ssl_vit.atlas.findings import contradicted, copies, outliers
from ssl_vit.atlas.groups import clusters
from ssl_vit.atlas.page import page
from ssl_vit.atlas.pictures import COLUMNS, draw_sheets
from ssl_vit.configs import AtlasConfig
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.sources.known import KnownLabels
from ssl_vit.evaluation.embedding import Embedded

RNG = np.random.default_rng(0)


def islands(each: int, count: int = 4, width: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Vectors around some directions far from each other, and which."""
    which = np.repeat(np.arange(count), each)
    x = 5 * np.eye(width)[which] + 0.3 * RNG.standard_normal((len(which), width))
    return x.astype(np.float32), which


def image_set(pixels: np.ndarray, bits: int = 8) -> ImageSet:
    form, side = Format(pixels.shape[1], bits), pixels.shape[2:]
    return ImageSet("set", ArrayRows(pixels, "set"), np.arange(len(pixels)), form, Sizes(side, min(side)), "source")


def noise(count: int, side: int = 16) -> np.ndarray:
    return RNG.integers(0, 256, (count, 3, side, side), dtype=np.uint8)


def purity(places: np.ndarray, which: np.ndarray) -> float:
    """Share of images whose nearest other on the map is of the same island."""
    away = ((places[:, None] - places[None]) ** 2).sum(axis=2)
    np.fill_diagonal(away, np.inf)
    return float((which[away.argmin(axis=1)] == which).mean())


@pytest.mark.parametrize("way", ["tsne", "pca", pytest.param("umap", marks=pytest.mark.skipif(
    find_spec("umap") is None, reason="umap-learn is an extra"))])  # fmt: skip
def test_islands_stay_apart_and_maps_are_repeatable(way) -> None:
    x, which = islands(40, count=3)
    parts = components(x)
    places, words = arrange(parts, way)
    again, _ = arrange(parts, way)
    assert (places == again).all()
    assert places.shape == (120, 2)
    assert 0 <= places.min() < 0.1 < 0.9 < places.max() <= 1
    assert purity(places, which) == 1
    assert words


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9])
def test_a_few_images_have_places_clusters_and_neighbours(count: int) -> None:
    x = RNG.standard_normal((count, 4)).astype(np.float32)
    parts = components(x)
    places, _ = arrange(parts, chosen_way("tsne", count))
    assert places.shape == (count, 2)
    assert np.isfinite(places).all()
    found = clusters(parts, None, 5)
    assert sorted(i for some in found.central for i in some) == sorted({i for some in found.central for i in some})
    assert np.bincount(found.number).sum() == count
    _, near = nearest_others(x, 5)
    assert near.shape == (count, min(5, count - 1))
    assert not (near == np.arange(count)[:, None]).any()


def test_more_images_than_are_arranged_lie_beside_those_they_resemble() -> None:
    x, which = islands(ARRANGED // 3 + 100, count=3)
    places, words = arrange(components(x), "tsne")
    assert f"{ARRANGED:,} images" in words
    centres = np.stack([places[which == c].mean(axis=0) for c in range(3)])
    nearest = ((places[:, None] - centres[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == which).mean() > 0.99


def test_the_way_is_what_is_installed() -> None:
    assert chosen_way("auto", 100) == ("umap" if find_spec("umap") else "tsne")
    assert chosen_way("auto", 5) == "pca"
    if not find_spec("umap"):
        with pytest.raises(UserError, match=r"ssl_vit\[umap\]"):
            chosen_way("umap", 100)


def test_clusters_that_separate_are_found_and_the_largest_comes_first() -> None:
    x, which = islands(30)
    x, which = np.concatenate([x, x[which == 2] + 0.01]), np.concatenate([which, np.full(30, 2)])
    found = clusters(components(x), None, 3)
    assert len(found.central) == 4
    assert "separates" in found.words
    assert len({(int(a), int(b)) for a, b in zip(found.number, which, strict=True)}) == 4
    assert set(which[found.number == 0]) == {2}
    assert all(found.number[i] == c for c, some in enumerate(found.central) for i in some)
    assert len(clusters(components(x), 6, 3).central) == 6
    blur = RNG.standard_normal((300, 16)).astype(np.float32)
    assert "none separates clearly" in clusters(components(blur), None, 3).words


def test_equal_vectors_are_one_cluster() -> None:
    assert clusters(np.zeros((20, 3), dtype=np.float32), None, 2).words == "one cluster"


def test_fewer_clusters_than_were_asked_for_are_told() -> None:
    x, _ = islands(30)
    assert clusters(components(x), 3, 2).words == "3 clusters of k-means, as many as asked for"
    few = np.repeat(x[[0, 40, 80, 119]], 10, axis=0)  # four images that differ
    assert clusters(few, 10, 2).words == "3 clusters of k-means, 10 were asked for: too few images differ"
    same = np.zeros((20, 3), dtype=np.float32)
    assert clusters(same, 7, 2).words == "one cluster (7 were asked for: too few images differ)"
    first = np.concatenate([np.repeat(x[:1], 5000, axis=0), *[x] * 50])  # equal images first hide no others
    assert len(clusters(first, 3, 2).central) == 3


def test_neighbours_are_the_largest_cosines_of_others() -> None:
    x = RNG.standard_normal((50, 6)).astype(np.float32)
    x[7] = x[3]
    value, near = nearest_others(x, 8)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -2)
    expected = -np.sort(-cosine, axis=1)[:, :8]
    assert value == pytest.approx(expected, abs=1e-5)
    assert near[7, 0] == 3
    assert near[3, 0] == 7


def test_of_many_equal_images_none_is_its_own_neighbour() -> None:
    _, near = nearest_others(np.ones((40, 3), dtype=np.float32), 5)
    assert near.shape == (40, 5)
    assert not (near == np.arange(40)[:, None]).any()


def test_no_image_is_far_from_its_copies() -> None:
    x = RNG.standard_normal((8, 16)).astype(np.float32)
    most = np.concatenate([np.repeat(x[:1], 25, axis=0), x[1:6]])
    found = outliers(nearest_others(most, 10)[0], 30)
    assert {one.image for one in found} == {25, 26, 27, 28, 29}
    assert all(0.5 < one.times < 2 for one in found)
    assert outliers(nearest_others(np.ones((40, 3), dtype=np.float32), 5)[0], 5) == []


def test_the_image_that_resembles_no_other_comes_first() -> None:
    x, _ = islands(30, count=2)
    x[17] = -x[17]
    found = outliers(nearest_others(x, 10)[0], 5)
    assert (found[0].image, len(found)) == (17, 5)
    assert found[0].times > 3 > found[1].times
    assert [o.times for o in found] == sorted((o.times for o in found), reverse=True)


def test_a_label_that_neighbours_contradict() -> None:
    x, which = islands(20, count=2)
    labels = which.copy()
    labels[5], labels[30] = 1, -1
    near = nearest_others(x, 10)[1]
    found = contradicted(KnownLabels("class", ("a", "b"), labels), near, 9)
    assert [(c.image, c.label, c.others) for c in found] == [(5, 1, 0)]
    assert found[0].votes == found[0].of == 10
    assert contradicted(None, near, 9) == []
    assert contradicted(KnownLabels("regression", ("a",), labels[:, None].astype(float)), near, 9) == []


def test_copies_exact_ones_first_and_none_in_noise() -> None:
    pixels = noise(40, 32)
    # Smooth pictures, so that a little noise leaves them alike.
    pixels = np.stack([
        np.asarray(Image.fromarray(p.transpose(1, 2, 0)).resize((4, 4)).resize((32, 32), Image.Resampling.BICUBIC))
        for p in pixels
    ]).transpose(0, 3, 1, 2).copy()  # fmt: skip
    assert copies(image_set(pixels), 0) == []
    pixels[9] = pixels[4]
    pixels[33] = pixels[4]
    pixels[20] = np.clip(pixels[11].astype(int) + 6, 0, 255)
    pixels[21] = pixels[12][:, :, ::-1]
    found = copies(image_set(pixels), 0)
    assert [(c.images, c.exact, c.change) for c in found] == [
        ((4, 9, 33), True, ""), *sorted([((11, 20), False, ""), ((12, 21), False, "mirrored")],
                                           key=lambda c: next(f.distance for f in found if f.images == c[0])),
    ]  # fmt: skip
    assert found[0].distance == 0


@pytest.mark.parametrize(("channels", "bits"), [(1, 8), (3, 8), (3, 16), (5, 8), (2, 16)])
def test_pictures_of_every_kind_stand_in_order(channels: int, bits: int) -> None:
    count, levels = COLUMNS + 3, 2**bits
    pixels = RNG.integers(0, levels, (count, channels, 40, 20)).astype(np.uint8 if bits == 8 else np.uint16)
    if bits == 8 and channels in (1, 3):
        pixels[:] = np.arange(count, dtype=np.uint8)[:, None, None, None] * 5
    sheets = draw_sheets(image_set(pixels, bits), np.arange(count)[::-1].copy(), 0)
    assert sheets.side == 96
    assert sheets.sizes.tolist() == [[20, 40]] * count
    with Image.open(__import__("io").BytesIO(sheets.files[0])) as sheet:
        drawn = np.asarray(sheet.convert("RGB"))
    assert drawn.shape == (2 * 96, COLUMNS * 96, 3)
    if bits == 8 and channels in (1, 3):
        for i in (0, 1, COLUMNS - 1, COLUMNS, count - 1):
            top, left = i // COLUMNS * 96, i % COLUMNS * 96
            assert drawn[top + 20, left + 10] == pytest.approx((count - 1 - i) * 5, abs=12)


def unpacked(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), kind)


def made(count: int, cfg: AtlasConfig, known: KnownLabels | None):
    x, _ = islands(count // 4)
    return survey(Embedded(image_set(noise(len(x))), x, known, ()), cfg, 0)


def test_what_the_page_reads_agrees_with_what_was_found() -> None:
    labels = np.arange(80) % 3 - 1
    atlas = made(80, AtlasConfig(map="pca", neighbours=5), KnownLabels("class", ("a", "</script>"), labels))
    told = data(atlas)
    assert (told["count"], len(told["names"]), told["neighbours"]) == (80, 80, 5)
    assert unpacked(told["near"], "<u2").reshape(80, 5).tolist() == atlas.near.tolist()
    assert unpacked(told["places"], "<u2").reshape(80, 2) / 65535 == pytest.approx(atlas.places, abs=1e-5)
    assert unpacked(told["label"], "<i2").tolist() == labels.tolist()
    assert told["texts"][:3] == ["", "a", "</script>"]
    assert sum(c["size"] for c in told["clusters"]) == 80
    assert told["outliers"][0][0] == atlas.outliers[0].image
    text = page(atlas, title="80 images", seen_by="As MAE sees them.", notes=["A note."])
    inside = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert inside is not None
    assert json.loads(inside[1]) == told
    assert text.count("</script>") == 2


def test_the_page_loads_nothing() -> None:
    text = page(made(40, AtlasConfig(map="pca"), None), title="t", seen_by="s", notes=())
    assert "default-src 'none'" in text
    assert not re.search(r"https?:|(?:src|href)=|@import|url\((?!\$)", text.split('id="data">')[0])
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|WebSocket|sendBeacon", text)


def test_on_a_phone_the_legend_wraps_and_the_menu_keeps_its_name() -> None:
    text = page(made(40, AtlasConfig(map="pca"), None), title="t", seen_by="s", notes=())
    phone = text.split("@media (max-width: 56rem) {")[1].split("</style>")[0]
    legend = re.search(r"#legend \{(.*?)\}", phone)
    assert legend is not None
    assert "nowrap" not in legend[1]
    assert "max-height: 14rem" in legend[1]  # seven lines of touchable buttons
    assert "<label><span>Colours </span>" in text
    assert "display: none" not in phone
    assert "no-repeat local" in text.split("#legend {")[1].split("}")[0]  # a shade while there is more below


def test_a_sample_is_pictured_where_there_are_more_and_what_stands_out_is_in_it() -> None:
    atlas = made(200, AtlasConfig(map="pca", pictures=90, neighbours=7), None)
    assert len(atlas.pictured) == 90
    assert set(atlas.pictured) >= {o.image for o in atlas.outliers}
    assert atlas.near.shape == (90, 7)
    assert atlas.near.max() < 90
    told = data(atlas)
    assert (told["count"], len(told["names"])) == (200, 90)
    places = unpacked(told["places"], "<u2").reshape(200, 2) / 65535
    assert places[:90] == pytest.approx(atlas.places[atlas.pictured], abs=1e-5)
    assert sorted(map(tuple, places.round(4))) == sorted(map(tuple, atlas.places.round(4).astype(float).round(4))) or (
        np.sort(places, axis=0) == pytest.approx(np.sort(atlas.places, axis=0), abs=1e-4)
    )


@pytest.mark.parametrize(
    ("known", "field"),
    [
        (KnownLabels("multilabel", ("x", "y"), np.array([[1.0, 0], [1, 1], [0, 0], [np.nan, np.nan]] * 10)), "label"),
        (KnownLabels("regression", ("age",), np.array([[0.5], [1.5], [2.5], [np.nan]] * 10)), "value"),
    ],
)  # fmt: skip
def test_labels_of_every_kind_become_colours(known: KnownLabels, field: str) -> None:
    told = data(made(40, AtlasConfig(map="pca"), known))
    if field == "label":
        assert unpacked(told["label"], "<i2")[:4].tolist() == [0, 1, 2, -1]
        assert told["labels"] == ["x", "y", "(none of them)"]
        assert told["texts"][:4] == ["x", "x;y", "", ""]
    else:
        assert unpacked(told["value"], "<f4")[:3].tolist() == [0.5, 1.5, 2.5]
        assert np.isnan(unpacked(told["value"], "<f4")[3])
        assert told["texts"][:4] == ["0.5", "1.5", "2.5", ""]


def test_every_class_has_its_entry_in_the_legend_whatever_its_name() -> None:
    axes, names = Figure().subplots(), ["_noise", "yes", "", "no"]
    _classes(axes, np.arange(16.0).reshape(8, 2), [*names, *names], {"s": 9})
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["(empty)", "_noise", "no", "yes"]
