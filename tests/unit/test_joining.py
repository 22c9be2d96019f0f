"""Engines that split the network are refused by name, before anything is joined."""

from __future__ import annotations

import pytest
from ssl_vit.core.errors import UserError
from ssl_vit.training.joining import refuse_engines


@pytest.mark.parametrize(
    ("variable", "engine"),
    [("ACCELERATE_USE_FSDP", "FSDP"), ("ACCELERATE_USE_DEEPSPEED", "DeepSpeed"),
     ("ACCELERATE_USE_MEGATRON_LM", "Megatron-LM")],
)  # fmt: skip
@pytest.mark.parametrize("value", ["true", "1", "True"])
def test_engines_that_split_the_network(
    variable: str, engine: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(UserError, match=f"accelerate config chooses {engine}, which splits the network"):
        refuse_engines()
    monkeypatch.setenv(variable, "false")  # as Accelerate's launcher says no
    refuse_engines()
