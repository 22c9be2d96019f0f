"""Batches to the device: all of them, in order, one ahead, with errors where they belong."""

from __future__ import annotations

from collections.abc import Generator
from queue import Queue
from threading import get_ident
from typing import Any

import pytest
import torch
from ssl_vit.data.loading.batch import finish, made_ahead, one_ahead, to_device


def source(n: int, seen: list[str], fails: bool = False) -> Generator[int, None, None]:
    try:
        for i in range(n):
            seen.append(f"made {i}")
            yield i
        if fails:
            raise ValueError("broken")
    finally:
        seen.append("closed")


def sent(seen: list[str], n: int, fails: bool = False) -> Any:
    def send(item: int) -> int:
        seen.append(f"sent {item}")
        return 10 * item

    return one_ahead(source(n, seen, fails), send, lambda value: value + 1)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_everything_arrives_in_order(n: int) -> None:
    seen: list[str] = []
    assert list(sent(seen, n)) == [10 * i + 1 for i in range(n)]
    assert seen[-1] == "closed"


def test_the_next_one_is_on_its_way_while_one_is_in_use() -> None:
    seen: list[str] = []
    arriving = sent(seen, 4)
    assert seen == []
    for i in range(4):
        assert next(arriving) == 10 * i + 1
        assert [word for word in seen if word.startswith("sent")] == [f"sent {k}" for k in range(min(i + 2, 4))]


@pytest.mark.parametrize("n", [0, 1, 3])
def test_an_error_comes_after_what_was_made_before_it(n: int) -> None:
    arriving = sent([], n, fails=True)
    assert [next(arriving) for _ in range(n)] == [10 * i + 1 for i in range(n)]
    with pytest.raises(ValueError, match="broken"):
        next(arriving)
    assert list(arriving) == []


def test_closing_closes_the_source() -> None:
    seen: list[str] = []
    arriving = sent(seen, 5)
    next(arriving)
    assert "closed" not in seen
    arriving.close()
    assert seen[-1] == "closed"


def test_a_thread_makes_the_next_one_while_one_is_in_use() -> None:
    seen: list[str] = []
    made: Queue[int] = Queue()

    def items() -> Generator[int, None, None]:
        for i in source(4, seen):
            made.put(get_ident())
            yield i

    coming = made_ahead(items(), torch.device("cpu"))
    assert seen == []
    for i in range(4):
        assert next(coming) == i
        assert made.get() != get_ident()
    assert list(coming) == []
    assert seen[-1] == "closed" and made.empty()


def test_a_thread_makes_one_more_and_no_other() -> None:
    seen: list[str] = []
    coming = made_ahead(source(5, seen), torch.device("cpu"))
    assert next(coming) == 0
    coming.close()
    assert seen == ["made 0", "made 1", "closed"]


def test_what_a_thread_fails_at_is_told() -> None:
    coming = made_ahead(source(2, [], fails=True), torch.device("cpu"))
    assert [next(coming) for _ in range(2)] == [0, 1]
    with pytest.raises(ValueError, match="broken"):
        next(coming)


@pytest.mark.parametrize(("name", "number"), [("cuda", 3), ("cuda:1", 1)])
def test_a_thread_works_with_the_gpu_of_its_batches(name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[Any] = []
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", lambda place: chosen.append((place.index, get_ident())))
    assert list(made_ahead(source(2, []), torch.device(name))) == [0, 1]
    ((index, thread),) = chosen  # CUDA itself takes no GPU without a number
    assert index == number and thread != get_ident()


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_batches_are_on_the_device(device: str) -> None:
    closed: list[bool] = []

    def fields() -> Generator[dict[str, Any], None, None]:
        try:
            for i in range(3):
                yield {
                    "images": torch.full((2, 1, 3, 3), -i, dtype=torch.int16),
                    "index": torch.tensor([i, 7]), "epoch": torch.tensor([0, i]),
                    "sizes": torch.ones(2, 2), "native": False, "labels": None,
                }  # fmt: skip
        finally:
            closed.append(True)

    batches = list(to_device(fields(), torch.device(device), finish))
    assert closed == [True]
    assert [b.images.device.type for b in batches] == [device] * 3
    for b in batches:  # what views draw by
        assert {x.device.type for x in (b.index, b.epoch, b.sizes)} == {"cpu"}
    assert batches[0].labels is None
    assert batches[0].images.dtype == torch.int32
    if device == "cpu":
        assert [int(b.images[0, 0, 0, 0]) for b in batches] == [0, 65535, 65534]
        assert [b.index.tolist() for b in batches] == [[0, 7], [1, 7], [2, 7]]
