"""Engines that split the network are refused by name, before anything is joined."""

from __future__ import annotations

import os

import pytest
from ssl_vit.core.errors import UserError
from ssl_vit.training import joining
from ssl_vit.training.joining import refuse_engines


@pytest.mark.parametrize(
    ("variable", "engine"),
    [("ACCELERATE_USE_DEEPSPEED", "DeepSpeed"), ("ACCELERATE_USE_MEGATRON_LM", "Megatron-LM")],
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


def test_sharding_is_of_version_2_and_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(UserError, match="FSDP of version 1; here it is version 2"):
        refuse_engines()
    monkeypatch.setenv("FSDP_VERSION", "2")
    refuse_engines()
    monkeypatch.setenv("FSDP_OFFLOAD_PARAMS", "true")
    with pytest.raises(UserError, match="fsdp_offload_params"):
        refuse_engines()


def test_what_accelerate_was_told_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_chosen", {})
    for name, value in (("USE_FSDP", "true"), ("USE_DEEPSPEED", "false")):
        monkeypatch.setenv(f"ACCELERATE_{name}", value)
    monkeypatch.setenv("FSDP_VERSION", "2")
    monkeypatch.setenv("FSDP_RESHARD_AFTER_FORWARD", "false")
    assert not joining.asks_to_shard()
    joining._take_over_sharding()
    assert joining.asks_to_shard()
    assert not joining.reshards()
    assert os.environ["ACCELERATE_USE_FSDP"] == "false"  # Accelerate leaves the network alone
