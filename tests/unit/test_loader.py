"""Batches: every image once per epoch in the same order, however they are decoded, cached, shared out or restarted."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from ssl_vit.core.errors import UserError
from ssl_vit.data.decoding.decode import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.data.loading.batch import narrow, widen
from ssl_vit.data.loading.cache import Cache
from ssl_vit.data.loading.loader import Batch, Loader, UnreadableLog, eval_batches
from ssl_vit.data.sources.folder import FileRows
from ssl_vit.data.targets import measure_targets

CPU = torch.device("cpu")


def png(value: int, size: tuple[int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("L", size, value).save(file, "PNG")
    return file.getvalue()


def file_set(root: Path, n: int, broken: tuple[int, ...] = (), *, mixed: bool = False) -> ImageSet:
    """Image i is filled with grey level i; broken ones are cut short. Mixed sizes are brought to a canvas."""
    root.mkdir(exist_ok=True)
    paths = [f"{i:04}.png" for i in range(n)]
    for i, path in enumerate(paths):
        raw = png(i % 256, (3 + i % 3, 4) if mixed else (4, 4))
        (root / path).write_bytes(raw[:40] if i in broken else raw)
    sizes, canvas = (Sizes(None, 4), (4, 4)) if mixed else (Sizes((4, 4), 4), None)
    labels = np.arange(n) % 5
    classes = tuple("abcde")
    return ImageSet(
        "files", FileRows(root, paths), np.arange(n), Format(1, 8), sizes, "",
        labels=labels, classes=classes, canvas=canvas,
    )  # fmt: skip


def array_set(n: int) -> ImageSet:
    pixels = np.zeros((n, 1, 2, 2), dtype=np.uint16) + np.arange(n, dtype=np.uint16)[:, None, None, None]
    return ImageSet("arrays", ArrayRows(pixels, "arrays"), np.arange(n), Format(1, 16), Sizes((2, 2), 2), "")


def load(
    images: ImageSet,
    *,
    batch: int,
    micro: int | None = None,
    seed: int = 0,
    cache: Cache = "ram",
    workers: int | None = 0,
    repeats: int = 1,
) -> Loader:
    return Loader(
        images, batch_size=batch, micro_batch=micro or batch, seed=seed, device=CPU, cache=cache, workers=workers,
        repeats=repeats,
    )  # fmt: skip


def pretend(monkeypatch: pytest.MonkeyPatch, rank: int, world: int) -> None:
    monkeypatch.setattr("ssl_vit.data.loading.loader.rank_and_world", lambda: (rank, world))


def visits(batches: list[Batch]) -> list[tuple[int, int]]:
    """(epoch, image) of everything that was loaded, in order."""
    return [pair for b in batches for pair in zip(b.epoch.tolist(), b.index.tolist(), strict=True)]


def same(one: list[Batch], other: list[Batch]) -> bool:
    def equal(a: Batch, b: Batch) -> bool:
        tensors = all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("images", "index", "epoch", "sizes"))
        labels = a.labels is b.labels or (
            a.labels is not None and b.labels is not None and torch.equal(a.labels, b.labels)
        )
        return tensors and labels and a.native == b.native

    return len(one) == len(other) and all(equal(a, b) for a, b in zip(one, other, strict=True))


# Order


@given(n=st.integers(1, 40), batch=st.integers(1, 50), seed=st.integers(0, 1000), epochs=st.integers(1, 4))
def test_every_image_comes_exactly_once_per_epoch(n: int, batch: int, seed: int, epochs: int) -> None:
    steps = -(-n * epochs // batch)
    loader = load(array_set(n), batch=batch, seed=seed)
    batches = list(loader.batches(0, steps))
    assert len(batches) == steps
    assert all(len(b.index) == batch for b in batches)  # always full
    seen = visits(batches)
    assert [epoch for epoch, _ in seen] == [place // n for place in range(steps * batch)]
    for epoch in range(epochs):
        assert sorted(i for e, i in seen if e == epoch) == list(range(n))
    assert len(set(seen)) == len(seen)
    for b in batches:
        assert torch.equal(b.images[:, 0, 0, 0], b.index.to(torch.int32))
    assert loader.steps_per_epoch == n / batch


def test_the_order_differs_by_epoch_and_seed() -> None:
    def order(seed: int, epoch: int) -> tuple[int, ...]:
        return tuple(i for _, i in visits(list(load(array_set(30), batch=30, seed=seed).batches(epoch, epoch + 1))))

    orders = [order(seed, epoch) for seed in range(3) for epoch in range(3)]
    assert len(set(orders)) == 9
    assert tuple(range(30)) not in orders


@given(n=st.integers(1, 25), batch=st.integers(1, 30), start=st.integers(0, 12))
def test_starting_later_gives_the_tail(n: int, batch: int, start: int) -> None:
    images = array_set(n)
    whole = list(load(images, batch=batch).batches(0, 15))
    assert same(list(load(images, batch=batch).batches(start, 15)), whole[start:])


@given(
    n=st.integers(1, 25), batch=st.integers(1, 24), repeats=st.integers(1, 4), start=st.integers(0, 6),
    seed=st.integers(0, 9),
)  # fmt: skip
def test_repeated_images_are_visited_equally_often_each_time_anew(
    n: int, batch: int, repeats: int, start: int, seed: int
) -> None:
    images, repeats = array_set(n), min(repeats, batch)
    loader, plain = (load(images, batch=batch, seed=seed, repeats=r) for r in (repeats, 1))
    steps = -(-2 * n * repeats // batch)
    batches = list(loader.batches(0, steps))
    seen = visits(batches)
    assert len(set(seen)) == len(seen)  # no two visits share random numbers
    for walk in range(2):  # an order that is used up has shown every image so many times
        whole = [i for e, i in seen if e // repeats == walk]
        assert sorted(whole) == sorted([*range(n)] * repeats)
    for b in batches:
        assert len(b.index) == batch
        assert len(set(b.index.tolist())) <= -(-batch // repeats) + 1
    assert same(list(load(images, batch=batch, seed=seed, repeats=repeats).batches(start, steps)), batches[start:])
    order = [i for _, i in visits(list(plain.batches(0, -(-n // batch))))][:n]
    assert [i for e, i in seen if e == 0] == order


def test_repeated_images_are_no_neighbours_which_may_be_mixed() -> None:
    for b in load(array_set(40), batch=12, repeats=3).batches(0, 10):
        assert (b.index[::2] != b.index[1::2]).all()
        assert len(set(b.index.tolist())) <= 5


def test_repeated_images_are_shared_out_over_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    images = array_set(11)
    whole = visits(list(load(images, batch=12, repeats=3).batches(0, 7)))
    parts: list[list[Batch]] = []
    for rank in range(2):
        pretend(monkeypatch, rank, 2)
        parts.append(list(load(images, batch=12, micro=3, repeats=3).batches(0, 7)))
    together = [visits([part]) for pair in zip(*parts, strict=True) for part in pair]
    assert [pair for part in together for pair in part] == whole


def test_more_repeats_than_a_batch_holds() -> None:
    with pytest.raises(UserError, match=r"--augment\.repeats 3 is more than --fit\.batch_size 2 holds"):
        load(array_set(9), batch=2, repeats=3)


def test_a_loader_can_go_back() -> None:
    loader = load(array_set(7), batch=5)
    whole = list(loader.batches(0, 12))
    assert same(list(loader.batches(0, 3)), whole[:3])


@pytest.mark.parametrize("mixed", [False, True])
def test_cache_and_workers_change_nothing(tmp_path: Path, mixed: bool) -> None:
    images = file_set(tmp_path / "images", 11, broken=(4,), mixed=mixed)
    expected = list(load(images, batch=8, micro=4, cache="ram").batches(0, 5))
    assert len(expected) == 10
    for workers in (0, 1, 2):
        loader = load(images, batch=8, micro=4, cache="none", workers=workers)
        assert loader.kept == "decoded as needed"
        assert same(list(loader.batches(0, 5)), expected)
        assert same(list(loader.batches(3, 5)), expected[6:])
    for workers in (1, 2):
        loader = load(images, batch=8, micro=4, cache="ram", workers=workers)
        assert loader.kept.startswith("kept in shared memory: 176 bytes of ")
        assert same(list(loader.batches(0, 5)), expected)


def test_a_batch_says_what_it_holds(tmp_path: Path) -> None:
    images = file_set(tmp_path / "images", 9, mixed=True)
    for cache in ("ram", "none"):
        (batch,) = load(images, batch=9, cache=cache).batches(0, 1)
        index = batch.index.tolist()
        assert batch.images.dtype == torch.uint8
        assert batch.images.shape == (9, 1, 4, 4)
        assert batch.images[:, 0, 1, 1].tolist() == index
        assert batch.sizes.tolist() == [[4.0, 3.0 + i % 3] for i in index]
        assert not batch.native
        assert batch.truth.tolist() == [i % 5 for i in index]
    (batch,) = load(file_set(tmp_path / "same", 3), batch=3).batches(0, 1)
    assert batch.native
    (batch,) = load(array_set(3), batch=3).batches(0, 1)
    assert batch.labels is None
    with pytest.raises(ValueError, match="opened without them"):
        _ = batch.truth
    assert batch.images.dtype == torch.int32


def test_numbers_to_learn_from_keep_their_spread_however_large_they_are(tmp_path: Path) -> None:
    taken = 1.7e9 + np.arange(9.0)[:, None]
    images = replace(file_set(tmp_path, 9), labels=taken, classes=("taken",), kind="regression")
    (batch,) = load(images.standardised(measure_targets(taken)), batch=9).batches(0, 1)
    assert batch.truth.dtype == torch.float32  # MPS has no double
    expected = (batch.index[:, None] - 4.0) / np.arange(9.0).std()
    torch.testing.assert_close(batch.truth, expected.float(), rtol=0, atol=1e-6)


def test_a_subset_keeps_rows_and_labels_together(tmp_path: Path) -> None:
    images = file_set(tmp_path / "images", 20).subset(np.array([17, 3, 8, 12]))
    (batch,) = load(images, batch=4).batches(0, 1)
    rows = [[17, 3, 8, 12][i] for i in batch.index.tolist()]
    assert batch.images[:, 0, 0, 0].tolist() == rows
    assert batch.labels is not None
    assert batch.labels.tolist() == [row % 5 for row in rows]


def test_all_16_bits_reach_the_tensor() -> None:
    pixels = np.array([0, 1, 32767, 32768, 65535], dtype=np.uint16)
    assert widen(narrow(pixels)).tolist() == [0, 1, 32767, 32768, 65535]
    assert widen(narrow(pixels)).dtype == torch.int32
    assert widen(narrow(np.array([0, 255], dtype=np.uint8))).dtype == torch.uint8


# Processes


@pytest.mark.parametrize(("world", "micro"), [(1, 3), (2, 3), (2, 6), (3, 2), (4, 3), (6, 2)])
@pytest.mark.parametrize("cache", ["ram", "none"])
def test_shares_of_all_processes_make_the_whole_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: int, micro: int, cache: Cache
) -> None:
    images = file_set(tmp_path / "images", 17, broken=(5,))
    whole = list(load(images, batch=12).batches(0, 4))
    shares = []
    for rank in range(world):
        pretend(monkeypatch, rank, world)
        loader = load(images, batch=12, micro=micro, cache=cache)
        assert loader.accumulation == 12 // (micro * world)
        shares.append(list(loader.batches(0, 4)))
    rounds = 12 // (micro * world)
    for step, expected in enumerate(whole):
        parts = [shares[rank][step * rounds + m] for m in range(rounds) for rank in range(world)]
        assert all(len(part.index) == micro for part in parts)
        for name in ("images", "index", "epoch", "sizes", "labels"):
            assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(expected, name))


def test_sizes_that_do_not_divide_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for batch, micro in ((10, 3), (2, 4)):
        with pytest.raises(UserError, match=r"--fit\.batch_size .*--fit\.micro_batch"):
            load(array_set(4), batch=batch, micro=micro)
    with pytest.raises(UserError, match=r"--fit\.micro_batch"):
        Loader(array_set(4), batch_size=4, micro_batch=0, seed=0, device=CPU)
    pretend(monkeypatch, 0, 3)
    with pytest.raises(UserError, match="3 process"):
        load(array_set(4), batch=8, micro=4)


# Windows


def window_set(n: int = 7, side: int = 4) -> ImageSet:
    """Pixels of image i hold 1000 i + 31 row + column, so a window's first one tells where it lies."""
    rows, columns = np.mgrid[:20, :31]
    pixels = (1000 * np.arange(n)[:, None, None] + 31 * rows + columns)[:, None].astype(np.uint16)
    sizes = Sizes((20, 31), 20)
    return ImageSet("arrays", ArrayRows(pixels, "a"), np.arange(n), Format(1, 16), sizes, "").on_canvas(None, 2, side)


def window_files(root: Path, n: int = 7, broken: tuple[int, ...] = ()) -> ImageSet:
    root.mkdir()
    whole = np.arange(600, dtype=np.uint16).reshape(20, 30)
    for i in range(n):
        Image.fromarray(whole + np.uint16(1000 * i)).save(root / f"{i}.png")
        if i in broken:
            (root / f"{i}.png").write_bytes(b"")
    rows = FileRows(root, [f"{i}.png" for i in range(n)])
    return ImageSet("files", rows, np.arange(n), Format(1, 16), Sizes((20, 30), 20), "").on_canvas(None, 2, 4)


def test_every_visit_shows_another_window() -> None:
    images = window_set()
    loader = load(images, batch=7)
    assert loader.kept == "decoded as needed: every visit cuts another window"  # though memory was asked for
    shown = {}
    for batch in loader.batches(0, 40):
        assert batch.images.shape == (7, 1, 4, 4)
        assert batch.native
        assert batch.sizes.unique().tolist() == [4.0]
        for epoch, i, pixels in zip(batch.epoch.tolist(), batch.index.tolist(), batch.images[:, 0], strict=True):
            first = int(pixels[0, 0])
            assert first // 1000 == i
            shown[epoch, i] = divmod(first % 1000, 31)
            assert torch.equal(pixels - pixels[0, 0], 31 * torch.arange(4)[:, None] + torch.arange(4)[None])
    assert len(shown) == 280
    rows, columns = (np.array([place[axis] for place in shown.values()]) for axis in (0, 1))
    assert (rows.min(), rows.max()) == (0, 16)
    assert (columns.min(), columns.max()) == (0, 27)
    # Uniform and independent, within 4.5 standard errors.
    assert abs(rows.mean() - 8) < 4.5 * (17**2 / 12 / 280) ** 0.5
    assert abs(columns.mean() - 13.5) < 4.5 * (28**2 / 12 / 280) ** 0.5
    assert abs(np.corrcoef(rows, columns)[0, 1]) < 4.5 / 280**0.5
    assert len({shown[epoch, 3] for epoch in range(40)}) > 30
    other = next(iter(load(images, batch=7, seed=1).batches(0, 1)))
    assert any(
        divmod(int(pixels[0, 0, 0]) % 1000, 31) != shown[0, i]
        for i, pixels in zip(other.index.tolist(), other.images, strict=True)
    )


def test_windows_are_the_same_in_any_worker_process_or_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = window_files(tmp_path / "images", broken=(2,))
    whole = list(load(images, batch=6).batches(0, 5))
    for workers in (1, 2):
        assert same(list(load(images, batch=6, workers=workers).batches(0, 5)), whole)
    assert same(list(load(images, batch=6).batches(3, 5)), whole[3:])
    shares = []
    for rank in range(2):
        pretend(monkeypatch, rank, 2)
        shares.append(list(load(images, batch=6, micro=3).batches(0, 5)))
    for step, expected in enumerate(whole):
        assert torch.equal(torch.cat([share[step].images for share in shares]), expected.images)


def test_evaluation_reads_the_middle_window() -> None:
    images = window_set()
    for batch in eval_batches(images, 3, CPU, UnreadableLog(images), 0):
        assert batch.native
        for i, pixels in zip(batch.index.tolist(), batch.images[:, 0], strict=True):
            assert int(pixels[0, 0]) == 1000 * i + 31 * 8 + 14


# Unreadable images


@pytest.mark.parametrize(("cache", "workers"), [("ram", 0), ("none", 0), ("none", 2)])
def test_an_unreadable_image_is_named_once_and_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cache: Cache, workers: int
) -> None:
    images = file_set(tmp_path / "images", 10, broken=(6,))
    loader = load(images, batch=5, cache=cache, workers=workers)
    batches = list(loader.batches(0, 6))  # three epochs
    err = capsys.readouterr().err
    assert err.count("warning") == 1
    assert err.count(str(tmp_path / "images" / "0006.png")) == 1
    assert "another image takes its place" in err
    assert list(loader.unreadable.reasons) == [6]
    assert all(len(b.index) == 5 for b in batches)
    seen = visits(batches)
    for epoch in range(3):
        assert sorted(i for e, i in seen if e == epoch) == [0, 1, 2, 3, 4, 5, 7, 7, 8, 9]
    for b in batches:
        assert b.images[:, 0, 0, 0].tolist() == b.index.tolist()  # an index always names the pixels that are there
        assert b.labels is not None
        assert b.labels.tolist() == [i % 5 for i in b.index.tolist()]


def test_the_last_image_is_replaced_by_the_first(tmp_path: Path) -> None:
    images = file_set(tmp_path / "images", 4, broken=(3,))
    for cache in ("ram", "none"):
        seen = visits(list(load(images, batch=4, cache=cache).batches(0, 1)))
        assert sorted(i for _, i in seen) == [0, 0, 1, 2]


@pytest.mark.parametrize("cache", ["ram", "none"])
@pytest.mark.parametrize(
    ("n", "broken", "stops"),
    [(10, (1,), False), (10, (1, 6), True), (150, (3, 70), True), (200, (3, 70), False), (200, (3, 4, 5), True)],
)
def test_more_than_one_percent_and_more_than_one_stops(
    tmp_path: Path, n: int, broken: tuple[int, ...], stops: bool, cache: Cache
) -> None:
    images = file_set(tmp_path / "images", n, broken=broken)

    def epoch() -> list[Batch]:
        return list(load(images, batch=10, cache=cache).batches(0, n // 10))

    if not stops:
        assert len(epoch()) == n // 10
        return
    with pytest.raises(UserError) as raised:
        epoch()
    text = str(raised.value)
    assert f"{len(broken)} of {n}" in text
    assert "1%" in text
    for i in broken:
        assert str(tmp_path / "images" / f"{i:04}.png") in text


def test_a_file_that_vanishes_is_unreadable_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = file_set(tmp_path / "images", 6)
    (tmp_path / "images" / "0002.png").unlink()
    load(images, batch=6)
    assert "0002.png cannot be read (cannot be opened" in capsys.readouterr().err


# Evaluation


@given(n=st.integers(1, 50), world=st.integers(1, 7), size=st.integers(1, 20))
def test_evaluation_sees_every_image_once_over_all_processes(n: int, world: int, size: int) -> None:
    images = array_set(n)
    index: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        for rank in range(world):
            pretend(patch, rank, world)
            for batch in eval_batches(images, size, CPU, UnreadableLog(images), 0):
                assert 1 <= len(batch.index) <= size
                assert torch.equal(batch.images[:, 0, 0, 0], batch.index.to(torch.int32))
                assert not batch.epoch.any()
                index += batch.index.tolist()
    assert index == list(range(n))  # in order of processes nothing is missing, double or padded


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("workers", [0, 1])
def test_evaluation_leaves_unreadable_images_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    world: int,
    workers: int,
) -> None:
    images = file_set(tmp_path / "images", 13, broken=(4,))
    index: list[int] = []
    for rank in range(world):
        pretend(monkeypatch, rank, world)
        for batch in eval_batches(images, 3, CPU, UnreadableLog(images), workers):
            assert batch.images[:, 0, 0, 0].tolist() == batch.index.tolist()
            assert batch.labels is not None
            assert batch.labels.tolist() == [i % 5 for i in batch.index.tolist()]
            index += batch.index.tolist()
    assert index == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12]
    err = capsys.readouterr().err
    assert err.count("0004.png") == 1
    assert "left out" in err


def test_a_batch_of_nothing_but_unreadable_images_is_skipped(tmp_path: Path) -> None:
    images = file_set(tmp_path / "images", 5, broken=(2,))
    batches = list(eval_batches(images, 1, CPU, UnreadableLog(images), 0))
    assert [b.index.tolist() for b in batches] == [[0], [1], [3], [4]]


def test_evaluation_stops_at_too_many_unreadable_images(tmp_path: Path) -> None:
    images = file_set(tmp_path / "images", 12, broken=(4, 9))
    with pytest.raises(UserError, match=r"2 of 12[\s\S]*0004\.png[\s\S]*0009\.png"):
        list(eval_batches(images, 4, CPU, UnreadableLog(images), 0))


def test_a_silent_log_counts_but_neither_warns_nor_stops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = file_set(tmp_path / "images", 12, broken=(9, 4))
    log = UnreadableLog(images, silent=True)
    assert sum(len(b.index) for b in eval_batches(images, 4, CPU, log, 0)) == 10
    assert capsys.readouterr().err == ""
    assert [Path(line.split(" cannot be read (")[0]).name for line in log.listing()] == ["0004.png", "0009.png"]
