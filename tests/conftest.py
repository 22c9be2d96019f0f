"""Shapes and types are checked at run time in every test of the package."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jaxtyping import install_import_hook

install_import_hook("ssl_vit", "beartype.beartype")


@pytest.fixture(autouse=True)
def nothing_said_yet() -> Iterator[None]:
    """Every test is a program of its own."""
    from accelerate.state import AcceleratorState
    from ssl_vit.core.notices import forget
    from ssl_vit.training.products import choose_attention

    forget()
    AcceleratorState._reset_state()  # the precision of the test before
    choose_attention("fp32")
    yield
