"""What checks shapes and types at run time refuses what is wrong, with and without shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from beartype import BeartypeConf, beartype
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from made_checks import checked

Rows = Float[Tensor, "rows columns"]
check = checked(typechecker=beartype(conf=BeartypeConf(is_pep484_tower=True)))


@check
def told(count: int, share: float = 0.5, *words: str, wrong: bool = False) -> str:
    return 1 if wrong else "".join((str(count), str(share), *words))  # pyright: ignore[reportReturnType]


@check
def added(a: Rows, b: Rows | None, of: Callable[..., Tensor]) -> Tensor:
    return of(a if b is None else a + b)


@check
def counted(most: int) -> Iterator[int]:
    yield from range(most)


@check
@dataclass
class Size:
    height: int
    width: float


@check
@dataclass
class Depth(Size):
    depth: int = 1


@check
class Written(Size):
    """Its own ``__init__`` is checked where it stands."""

    @check
    def __init__(self, side: int) -> None:
        super().__init__(side, side)


def test_what_is_right_goes_through() -> None:
    assert told(1, 2, "a") == "12a" and list(counted(2)) == [0, 1]  # an int is a float, too
    assert added(torch.ones(2, 1), torch.ones(2, 1), torch.sum) == 4
    assert Depth(1, 2) == Depth(1, 2.0, 1) and Written(2).width == 2


@pytest.mark.parametrize(
    "wrong",
    [lambda: told("1"), lambda: told(1, "2"), lambda: told(1, 2, 3), lambda: told(1, wrong=True),
     lambda: added(torch.ones(2, 1), torch.ones(3, 1), torch.sum), lambda: added(torch.ones(2), None, torch.sum),
     lambda: counted("2"), lambda: Size(1, "2"), lambda: Depth("1", 2), lambda: Depth(1, 2, "3"),
     lambda: Written("2")],
)  # fmt: skip
def test_what_is_wrong_is_refused(wrong: Callable[[], Any]) -> None:
    with pytest.raises(TypeCheckError):
        wrong()
