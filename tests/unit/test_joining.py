"""What is refused before anything is joined: engines that split the network, lost GPUs; and how processes meet."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ssl_vit.core.errors import UserError
from ssl_vit.training import joining, launch
from ssl_vit.training.joining import agree, refuse_engines, refuse_lost_gpus
from torch._C._distributed_c10d import HashStore


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


def test_gpus_of_slurm_that_torch_does_not_see_are_not_replaced_by_the_cpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    for name in ("ACCELERATE_USE_CPU", "CUDA_VISIBLE_DEVICES", "SLURM_RESTART_COUNT", "SLURM_STEP_GPUS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "0")
    refuse_lost_gpus()
    monkeypatch.setenv("SLURM_STEP_GPUS", "0,3")
    monkeypatch.setenv("SLURMD_NODENAME", "gpu07")
    words = r"SLURM has given this job 2 GPU\(s\) of gpu07, and torch .* sees none .*; set ACCELERATE_USE_CPU=1"
    with pytest.raises(UserError, match=words):
        joining.joined("no")
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    with pytest.raises(SystemExit) as end:
        refuse_lost_gpus()
    assert end.value.code == 75 and "of gpu07" in capsys.readouterr().err
    for none in ("", "-1", "NoDevFiles"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", none)  # a person leaves them aside, or SLURM gives this step none
        refuse_lost_gpus()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    refuse_lost_gpus()


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


def test_what_an_option_says_accelerate_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launch.forget_what_was()
    for name, value in (("MIXED_PRECISION", "no"), ("DYNAMO_BACKEND", "NO"), ("GRADIENT_ACCUMULATION_STEPS", "1")):
        monkeypatch.setenv(f"ACCELERATE_{name}", value)  # as its launcher says that nothing was chosen
    joining.tell_unused("bf16")
    assert capsys.readouterr().err == ""
    for name, value in (("MIXED_PRECISION", "fp16"), ("DYNAMO_BACKEND", "EAGER"), ("GRADIENT_ACCUMULATION_STEPS", "4")):
        monkeypatch.setenv(f"ACCELERATE_{name}", value)
    accelerator = joining.joined("no")
    weight = torch.ones(1, requires_grad=True)
    accelerator.backward((8 * weight).sum())
    assert weight.grad == 8
    network = torch.nn.Linear(1, 1)
    assert accelerator.prepare(network) is network  # compiled, it would be another
    joining.tell_unused(accelerator.mixed_precision)
    assert capsys.readouterr().err == (
        "note: ACCELERATE_MIXED_PRECISION=fp16 has no effect here; give --fit.precision instead\n"
        "note: ACCELERATE_DYNAMO_BACKEND=EAGER has no effect here; give --fit.compile instead\n"
        "note: ACCELERATE_GRADIENT_ACCUMULATION_STEPS=4 has no effect here; give --fit.micro_batch instead\n"
    )
    launch.forget_what_was()


def test_every_start_of_a_job_has_a_name_of_its_own_in_a_store_that_keeps_the_dead() -> None:
    store, long, names = HashStore(), timedelta(seconds=60), list[str]()
    for start in range(3):
        with ThreadPoolExecutor(3) as processes:
            found = set(processes.map(lambda rank: agree(store, rank, 3, long), range(3)))
        assert len(found) == 1
        names += found
        for rank in range(1, 3):  # who asks and dies before the first process has come
            store.set(f"asks/{rank}", f"dead {start}")
    assert len(set(names)) == 3


def test_a_process_that_does_not_come_is_named() -> None:
    with pytest.raises(dist.DistStoreError, match=r"process\(es\) 1, 2 of 3 did not come"):
        agree(HashStore(), 0, 3, timedelta(0))
    with pytest.raises(dist.DistError):
        agree(HashStore(), 1, 3, timedelta(milliseconds=10))
