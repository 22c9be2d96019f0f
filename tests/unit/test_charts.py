"""Charts: what they leave out, and that their words lie where they belong, told by geometry."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from ssl_vit.core.errors import UserError
from ssl_vit.methods.starts import starts
from ssl_vit.report import look as look_of_reports
from ssl_vit.report.charts import plots
from ssl_vit.report.charts.canvas import Panel, figure_of, for_page, styled
from ssl_vit.report.charts.drawing import (
    Line,
    Mark,
    confusion,
    contrast,
    curves,
    forest,
    legible,
    losses,
    to_rgb,
)
from ssl_vit.report.charts.placing import End, falls_early, is_wide, name_ends, room, round_numbers, spread, wrapped
from ssl_vit.report.charts.training import curve, read_lines, told_apart, training_chart
from ssl_vit.report.findings.records import read_verdict
from ssl_vit.report.look import DARK, INK, KINDS, LONGER, PAPER, kind_of, looks, palette
from ssl_vit.statistics.advice import Advice, Attribution, Way

from made_verdict import DIGITS, make_verdict

COUNTS = [10, 20, 50, 100]
LOOKS = list(palette().values())
NAN = float("nan")


@pytest.mark.parametrize(
    ("labels", "stretches"),
    [
        ([10, 20, 50, 100], [[10, 20, 50, 100]]),
        ([10, 100], [[10], [100]]),
        ([10, 20, 100], [[10, 20], [100]]),
        ([50], [[50]]),
    ],
)
def test_a_line_is_broken_where_a_number_of_labels_is_left_out(labels: list[int], stretches: list[list[int]]) -> None:
    axis = Figure().add_subplot()
    points = {n: Mark(LONGER, float(n), float(n), float(n)) for n in labels}
    curves(axis, [Line("a", LONGER, points)], COUNTS, (0.0, 100.0), "top-1 %")
    assert [np.asarray(line.get_xdata()).tolist() for line in axis.lines] == stretches


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ([5.0, 50.0], [5.0, 50.0]),
        ([20.0, 20.0], [15.0, 25.0]),
        ([24.0, 20.0], [27.0, 17.0]),
        ([40.0, 41.0, 44.0], [31.67, 41.67, 51.67]),
        ([99.0, 99.0, 60.0], [85.0, 95.0, 60.0]),
        ([0.0, 3.0], [5.0, 15.0]),
    ],
)
def test_boxes_move_as_little_as_keeps_them_apart(wanted: list[float], found: list[float]) -> None:
    assert spread(wanted, [10.0] * len(wanted), 0.0, 100.0) == pytest.approx(found, abs=0.01)


def test_boxes_of_many_heights_never_lie_over_each_other_and_stay_inside() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        count = int(rng.integers(1, 9))
        heights, wanted = rng.choice([11.0, 22.0, 33.0], count), rng.uniform(-20, 320, count)
        found = np.array(spread(wanted.tolist(), heights.tolist(), 0.0, 300.0))
        low, high = found - heights / 2, found + heights / 2
        order = np.argsort(found)
        assert (low[order][1:] >= high[order][:-1] - 1e-6).all()
        assert low.min() >= -1e-6 and high.max() <= 300 + 1e-6
        assert (np.diff(wanted[order]) >= -1e-9).all()  # the order of the ends


def test_names_are_broken_and_take_room() -> None:
    assert wrapped("from scratch, at the cost of pre-training") == "from scratch, at\nthe cost of\npre-training"
    assert wrapped("mae-my_images-1a2b3c4d") == "mae-my_images-\n1a2b3c4d"
    assert wrapped("optim.base_lr=0.002-seed-1") == "optim.base_lr=\n0.002-seed-1"
    assert wrapped("base_lr=0.001-seed-0, seed-1") == "base_lr=0.001-\nseed-0, seed-1"
    assert (
        wrapped("a_name-of_parts,b") == "a_name-of_parts,b" and wrapped("a_long_name_of-all") == "a_long_name_of-\nall"
    )
    assert wrapped("a " + "b" * 20) == "a\n" + "b" * 17 + "\nbbb"
    assert room(["MAE", "from scratch", "from scratch, at the cost of pre-training"]) < 2.3  # five lines
    assert room([f"a run of some length {i}" for i in range(9)]) == pytest.approx(18 * 11 / 54)


def boxes(figure: Figure) -> list[tuple[str, Bbox]]:
    """All words that are drawn, with where they are."""
    figure.draw_without_rendering()
    hidden: set[Text] = set()  # names of ticks beyond the ends of their axis are not drawn
    for axis in (one for axes in figure.axes for one in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_major_ticks():
            hidden |= set() if low <= tick.get_loc() <= high else {tick.label1, tick.label2}
    every = (text for text in figure.findobj(Text) if isinstance(text, Text))
    seen = (text for text in every if text.get_visible() and text not in hidden)
    return [(words, text.get_window_extent()) for text in seen if (words := text.get_text().strip())]


def check_words_lie_well(figure: Figure) -> None:
    """Nothing is cut off, and nothing is written over anything else."""
    found, all_of_it = boxes(figure), figure.bbox
    for words, box in found:
        assert box.x0 >= -0.5 and box.x1 <= all_of_it.x1 + 0.5, words
        assert box.y0 >= -0.5 and box.y1 <= all_of_it.y1 + 0.5, words
    for (one, a), (other, b) in combinations(found, 2):
        across, down = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert min(across, down) <= 1.5, (one, other)


def many_lines(count: int, at: float) -> list[Line]:
    """Lines that all end near one value, of names as they occur."""
    names = ["MAE", "from scratch", "from scratch, at the cost of pre-training", "CNN from scratch", "raw pixels",
             "random weights", "public weights", "DINO"]  # fmt: skip
    return [
        Line(names[i], LOOKS[i], {n: Mark(LOOKS[i], at - 10 * k - i / 5, at - 12 * k - 1, at - 8 * k)
                                  for k, n in enumerate(reversed(COUNTS))})
        for i in range(count)
    ]  # fmt: skip


def drawn_panels() -> Iterator[tuple[str, Panel]]:
    long = ["Mitosis_late_prometaphase", "a class of a very long name", "G1", "$x_1$ & <b>", "unbroken" * 3]
    rng = np.random.default_rng(0)
    many = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 12_800)
    points = {n: Mark(LOOKS[0], 50.0, 40.0, 60.0) for n in many}
    yield "curves-of-many-counts", Panel("k-NN", lambda axis: curves(
        axis, [Line("random weights", LOOKS[0], points)], many, (0.0, 100.0), "top-1 %"), "")  # fmt: skip
    for count, at in ((1, 50.0), (5, 99.5), (8, 99.5), (8, 3.0)):
        yield f"curves-{count}-{at}", Panel("All weights trained", lambda axis, c=count, a=at: curves(
            axis, many_lines(c, a), COUNTS, (0.0, 100.0), "balanced %"), "")  # fmt: skip
    twelve = [Line(f"a run of some length {i}", LOOKS[0], points) for i in range(12)]
    yield "curves-of-twelve", Panel("k-NN", lambda axis: curves(
        axis, twelve, many, (0.0, 100.0), "top-1 %"), "", 0.8 + room(line.name for line in twelve))  # fmt: skip
    rows = {f"{n:,}": Mark(look, v, v - 3, v + 3)
            for n, look, v in zip((10, 641, 12_563), LOOKS, (-30.0, 1.0, 30.0), strict=False)}  # fmt: skip
    heading = "points, right of the line: better with pre-training"
    yield "forest", Panel("With less without pre-training", lambda axis: forest(axis, rows, heading), "", 1.8)
    steps = np.arange(10.0, 2000, 10)
    runs = [(f"seed {i}", steps, 0.3 + (1 + i / 9) * np.exp(-steps / 60)) for i in range(3)]
    seeds = [(f"seed {i}", steps, 0.3 + (1 + i / 9) * np.exp(-steps / 60)) for i in range(30)]
    yield "losses-of-many-seeds", Panel("", lambda axis: losses(axis, seeds, LOOKS[0]), "", 7.0)
    yield "losses", Panel("MAE pre-training", lambda axis: losses(axis, runs, LOOKS[0]), "", 2.6)
    for size in (2, 5, 12, 15, 30):
        names = [f"{long[i % 5][:16]} {i}" for i in range(size)]
        counts = rng.integers(0, 300, (size, size)).astype(float)
        title = "from scratch, at the cost of pre-training"
        yield (
            f"confusion-{size}",
            Panel(title, lambda axis, c=counts, n=names: confusion(axis, c, n, LOOKS[0]), "", 4.1),
        )


@pytest.mark.parametrize("name", [name for name, _ in drawn_panels()])
def test_no_word_is_cut_off_or_written_over_another(name: str) -> None:
    panel = dict(drawn_panels())[name]
    with styled():
        check_words_lie_well(figure_of([panel], 1))


def test_titles_of_one_endless_word_are_broken_and_end() -> None:
    with styled():
        check_words_lie_well(figure_of([Panel("unbroken" * 9, lambda axis: None, "")], 1))


def test_panels_beside_each_other_keep_their_words_apart() -> None:
    panels = [panel for name, panel in drawn_panels() if name in ("curves-8-99.5", "confusion-5", "forest")]
    with styled():
        check_words_lie_well(figure_of(panels, 3))


def test_every_name_is_beside_the_axis_and_near_its_end_where_there_is_room() -> None:
    def draw(axis: Axes):
        axis.set(xlim=(0, 1), ylim=(0, 100))
        return name_ends(axis, [End("a", 1.0, 20.0, LOOKS[0]), End("b", 1.0, 80.0, LOOKS[1])])

    with styled():
        figure = figure_of([Panel("", draw, "")], 1)
        axis, found = figure.axes[0], dict(boxes(figure))
    for name, value in (("a", 20.0), ("b", 80.0)):
        box = found[name]
        assert box.x0 > axis.get_window_extent().x1
        assert (box.y0 + box.y1) / 2 == pytest.approx(axis.transData.transform((1.0, value))[1], abs=2.0)


def test_names_stand_at_the_lines_however_many(tmp_path: Path) -> None:
    starts = {f"run {i} of a long name": (60.0 + i, 80.0) for i in range(12)}
    many = {(start, "train"): values for start, values in starts.items()}
    chart = plots.curves(read_verdict(make_verdict(tmp_path / "many", many, labels=(10, 100), longer=None)))
    assert chart is not None and all(f">run {i} of a long<" in chart.svgs[0] for i in range(12))


def test_one_number_of_labels_is_no_range(tmp_path: Path) -> None:
    """Not "over 96 to 96 labels", nor from a value to itself."""
    one = {key: values[:1] for key, values in DIGITS.items() if key[0] in ("scratch", "mae")}
    chart = plots.curves(read_verdict(make_verdict(tmp_path / "one", one, labels=(96,), longer=None)))
    assert chart is not None and " with 96 labels: " in chart.alt
    assert " over " not in chart.alt and not re.search(r" from \d", chart.alt)
    two = {key: values[:2] for key, values in DIGITS.items() if key[0] in ("scratch", "mae")}
    chart = plots.curves(read_verdict(make_verdict(tmp_path / "two", two, labels=(10, 96), longer=None)))
    assert chart is not None and " over 10 to 96 labels: " in chart.alt and re.search(r" from \d", chart.alt)


def test_what_is_advised_has_a_ring(tmp_path: Path) -> None:
    few = {key: values[:2] for key, values in DIGITS.items() if key[0] in ("scratch", "mae")}
    verdict = read_verdict(make_verdict(tmp_path / "few", few, labels=(10, 100)))
    way = Way("mae", "linear")
    chart = plots.curves(verdict, [Advice(10, way, 70.0, 60.0, 80.0, (way,), (), True)])
    assert chart is not None
    plain = plots.curves(verdict)
    assert plain is not None and [a == b for a, b in zip(chart.svgs, plain.svgs, strict=True)] == [True, False, True]


def test_differences_are_filled_where_something_is_claimed(tmp_path: Path) -> None:
    few = {key: values[:2] for key, values in DIGITS.items() if key[0] in ("scratch", "mae")}
    verdict, way = read_verdict(make_verdict(tmp_path / "few", few, labels=(10, 100))), Way("mae", "linear")
    told = (Attribution(10, 30.0, 20.0, 40.0, 0.001, "", way, Way("scratch+", "train")),
            Attribution(100, None, refused="not tuned"))  # fmt: skip
    chart = plots.attribution(verdict, told)
    assert chart is not None and chart.alt == "+30.0 with 10 labels." and "fill: var(--c-mae)" in chart.svgs[0]
    hollow = plots.attribution(verdict, [told[0]._replace(p=0.2)])
    assert hollow is not None and "fill: var(--c-mae)" not in hollow.svgs[0]
    assert plots.attribution(verdict, told[1:]) is None


def test_letters_are_read_on_every_share_of_every_colour() -> None:
    assert legible(LOOKS[0], 0.06) == INK and legible(LOOKS[0], 1.0) == PAPER
    for look in LOOKS:
        shares = [legible(look, alpha) for alpha in np.linspace(0.06, 1.0, 30)]
        assert shares == sorted(shares, key=[INK, PAPER].index)  # one change from one to the other, if any


@pytest.mark.parametrize("kind", KINDS)
def test_letters_are_read_on_the_ground_of_every_kind(kind: str) -> None:
    by_day, by_night = (INK, "#8a5a00"), (DARK[0], "#e3b341")  # as in report.css
    for ground, letters in ((KINDS[kind].light, by_day), (KINDS[kind].dark, by_night)):
        assert [c for c in letters if contrast(to_rgb(ground), to_rgb(c)) < 4.5] == []


@pytest.mark.parametrize(
    ("start", "kind"),
    [("mae", "made"), ("dino@cnn", "made"), ("mae (mae.mask_ratio 0.5)", "made"), ("public", "public"),
     ("scratch+", "scratch"), ("cnn", "scratch"), ("pixels", "none"), ("random", "none")],
)  # fmt: skip
def test_a_start_is_of_a_kind_whatever_its_network(start: str, kind: str) -> None:
    assert kind_of(start) == kind


def test_the_page_can_draw_every_marker() -> None:
    page = (Path(look_of_reports.__file__).parent / "page" / "templates" / "report.html.j2").read_text(encoding="utf-8")
    drawn = set(re.findall(r'^    "(.)": "M', page, re.MULTILINE))
    used = {one.marker for one in (*palette().values(), LONGER, *look_of_reports._OTHERS.values())}
    assert used <= drawn


def test_a_method_on_another_network_has_its_colour_and_another_marker() -> None:
    found = looks(["mae", "mae@cnn", "scratch", "hybrid"])
    assert found["mae"].light == found["mae@cnn"].light != found["hybrid"].light
    assert len({(look.light, look.marker, look.dash) for look in found.values()}) == 4


def test_looks_differ_for_every_eye() -> None:
    """CIE76 distances of the colours, also for three kinds of colour blindness (Machado et al. 2009)."""
    kinds = np.array([np.eye(3), [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
                      [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
                      [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]])  # fmt: skip
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    named = [*(start.look for start in starts().values() if start.look), LONGER]
    for colours in ([look.light for look in named], [look.dark for look in named]):
        rgb = np.array([to_rgb(colour) for colour in colours])
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        xyz = np.einsum("ij,kjl,nl->kni", to_xyz, kinds, linear) / [0.9505, 1.0, 1.089]
        f = np.where(xyz > 0.008856, np.cbrt(np.maximum(xyz, 0)), 7.787 * xyz + 16 / 116)
        lab = np.stack([116 * f[..., 1] - 16, 500 * (f[..., 0] - f[..., 1]), 200 * (f[..., 1] - f[..., 2])], axis=-1)
        for one, other in combinations(range(len(colours)), 2):
            assert np.linalg.norm(lab[:, one] - lab[:, other], axis=-1).min() > 9, (colours[one], colours[other])


def test_round_numbers_are_few_and_inside() -> None:
    assert round_numbers(0.3, 1.45) == pytest.approx([0.3, 0.5, 0.7, 1.0])
    assert round_numbers(8.0, 2100.0) == [10, 30, 100, 300, 1000]
    assert round_numbers(1e-9, 1e9)[0] >= 1e-9
    assert len(round_numbers(0.52, 0.58)) >= 2
    for low, high in ((1e-4, 2e-3), (0.9, 9.0), (3.0, 4.0), (1.0, 1e6)):
        found = round_numbers(low, high)
        assert 2 <= len(found) <= 6 and low <= found[0] and found[-1] <= high


def test_axes_are_logarithmic_where_most_would_be_hidden() -> None:
    steps = np.arange(1.0, 1001)
    assert is_wide([0.3, 1.4]) and not is_wide([0.8, 1.4]) and not is_wide([-1.0, 5.0]) and not is_wide([0.0, 5.0])
    assert falls_early(steps, np.exp(-steps / 20)) and not falls_early(steps, -steps)
    assert not falls_early(steps[:5], -steps[:5])


def a_run(folder: Path, *, watch: bool = False, steps: int = 200) -> Path:
    folder.mkdir(parents=True)
    lines = [{"step": 0, "epoch": 0.0, "watch/knn_top1": 30.0}] if watch else []
    for step in range(10, steps + 1, 10):
        lines.append({"step": step, "epoch": step / 10, "loss": 1 / step, "lr": 1e-3}
                     | ({"watch/knn_top1": 30.0 + step / 10} if watch and step % 50 == 0 else {}))  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 210, "lo')
    (folder / "health.jsonl").write_text('{"step": 100, "epoch": 10.0, "effective_rank": 12.0, "feature_std": 0.4}\n')
    return folder


def test_lines_of_a_run_that_goes_on_are_read_up_to_half_a_line(tmp_path: Path) -> None:
    lines = read_lines(a_run(tmp_path / "a", watch=True) / "metrics.jsonl")
    assert len(lines) == 21
    epochs, values = curve(lines, "watch/knn_top1", "epoch")
    assert list(zip(epochs, values, strict=True)) == [(0, 30), (5, 35), (10, 40), (15, 45), (20, 50)]
    assert [len(part) for part in curve([{"step": 1, "loss": NAN}, {"step": 2}], "loss")] == [0, 0]
    assert read_lines(tmp_path / "none.jsonl") == []


def test_curves_of_runs_are_one_picture_with_their_names(tmp_path: Path) -> None:
    chart = training_chart([a_run(tmp_path / "one", watch=True), a_run(tmp_path / "two", steps=400)])
    assert len(chart.svgs) == 5  # loss, rate, watch, rank, spread
    assert all(">one<" in svg for svg in chart.svgs[:3])
    assert all(">one, two<" in svg for svg in chart.svgs[3:])  # the same line
    assert "k-NN on held-out training labels" in chart.svgs[2] and ">two<" not in chart.svgs[2]
    assert chart.png.startswith(b"\x89PNG")
    assert ">one<" not in training_chart([tmp_path / "one"]).svgs[0]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["optim.base_lr=0.001-seed-0", "optim.base_lr=0.002-seed-1"],
         ["base_lr=0.001-seed-0", "base_lr=0.002-seed-1"]),
        (["optim.base_lr=1e-05+fit.epochs=9-seed-0", "optim.base_lr=2e-05+fit.epochs=9-seed-0"],
         ["base_lr=1e-05", "base_lr=2e-05"]),
        (["mae-my_images_of_cells-1a2b3c4d", "dino-my_images_of_cells-5e6f7a8b"], ["mae-1a2b3c4d", "dino-5e6f7a8b"]),
        (["a.rate=1+b.rate=3-seed-0", "a.rate=2+b.rate=4-seed-0"], ["a.rate=1+b.rate=3", "a.rate=2+b.rate=4"]),
        (["a-name-of-some-length", "a-name-of-some-length-of"], ["a-name-of-some-length", "a-name-of-some-length-of"]),
        (["mae-cells-1", "mae-cells-2"], ["mae-cells-1", "mae-cells-2"]),  # short enough as they are
        (["mae-my_images_of_cells-1a2b3c4d"], ["mae-my_images_of_cells-1a2b3c4d"]),
    ],
)  # fmt: skip
def test_long_names_lose_what_all_of_them_have(names: list[str], told: list[str]) -> None:
    assert told_apart(names) == told


def test_lines_that_are_equal_are_named_once(tmp_path: Path) -> None:
    names = [f"optim.base_lr={rate}-seed-{seed}" for rate in (0.001, 0.002) for seed in range(2)]
    chart = training_chart([a_run(tmp_path / name, steps=200 + 100 * ("0.002" in name)) for name in names])
    words = [re.findall(r">([^<>\n]*(?:seed|lr=)[^<>\n]*)<", svg) for svg in chart.svgs]
    assert sorted(words[1]) == ["base_lr=0.001-", "base_lr=0.002-", "seed-0, seed-1", "seed-0, seed-1"]
    five = training_chart([a_run(tmp_path / f"five-{i}") for i in range(5)])
    assert ">five-0, 4 more<" in five.svgs[1]


def test_every_name_has_a_line_that_leads_to_it() -> None:
    def draw(axis: Axes):
        axis.set(xlim=(0, 1), ylim=(0, 100))
        return name_ends(axis, [End(f"name {i}", 1.0, 10.0, LOOKS[i]) for i in range(8)])

    with styled():
        (leads,) = figure_of([Panel("", draw, "")], 1).axes[0].collections[:1]
    assert isinstance(leads, LineCollection)
    assert len(leads.get_segments()) == 8


def test_what_is_no_run_is_told_with_what_is_near(tmp_path: Path) -> None:
    a_run(tmp_path / "runs" / "mae-1")
    (tmp_path / "runs" / "new").mkdir()
    (tmp_path / "runs" / "new" / "metrics.jsonl").write_text("")
    for given, words in (("mae-2", "mae-2 is not there; give the folder of a run; did you mean .*runs/mae-1"),
                         ("", "runs has no metrics.jsonl, as a run has; .*it holds the runs mae-1"),
                         ("new", "has not logged a step yet")):  # fmt: skip
        with pytest.raises(UserError, match=words):
            training_chart([tmp_path / "runs" / given])
    with pytest.raises(UserError, match="named twice"):
        training_chart([tmp_path / "runs" / "mae-1"] * 2)


def test_every_longer_baseline_is_drawn(tmp_path: Path) -> None:
    own = {("scratch", "train"): (40.0, 80.0), ("cnn", "train"): (45.0, 84.0), ("mae", "train"): (70.0, 85.0)}
    chart = plots.curves(read_verdict(make_verdict(tmp_path, own, labels=(10, 100), longer_cnn=(50.0, 86.0))))
    assert chart is not None
    for name in ("from scratch, at the cost of pre-training", "CNN, at the cost of pre-training"):
        assert name in chart.alt


def test_one_bad_r2_does_not_press_the_others_into_a_line() -> None:
    assert plots._limits([-50.0, 0.2, 0.9], "r2") == (-1.0, 1.0)
    low, high = plots._limits([-50.0, -3.0], "r2")
    assert low < -1.0 < high, "where all are bad, the best are seen"
    assert plots._limits([0.5, 0.9], "r2")[0] > 0


@pytest.mark.parametrize("name", ["font-family: a", "font: b 3px c", "<b>", "a|b", "url(#a)"])
def test_a_name_that_looks_like_a_style_stays_a_name(name: str) -> None:
    text = f'<text style="font-family: Arial; fill: red">{escape(name)}</text>'
    made = for_page(f'<svg viewBox="0 0 1 1">{text}</svg>', "x", "y")
    assert ElementTree.fromstring(made).find("text").text == name  # pyright: ignore[reportOptionalMemberAccess]
