"""Options of the one training loop, its optimiser and its run directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from ssl_vit.configs.facts import LATER, NO_EFFECT, POSITIVE, SAME_PROTOCOL, SAME_RUN, Range
from ssl_vit.configs.settled import OPEN, Resolved


@dataclass(frozen=True)
class RunConfig:
    """The run directory."""

    dir: Annotated[str | None, NO_EFFECT] = None
    """Where everything is written; default: runs/<script>-<data>-<hash of the options that change results>."""
    log_with: Annotated[str | None, NO_EFFECT] = None
    """Trackers that also get metrics, pictures and options, beside metrics.jsonl: tensorboard, wandb, trackio, mlflow,
    or several with commas between. A missing package or login is told before training; a tracker that fails while a
    run trains is left out from there on."""


@dataclass(frozen=True)
class OptimConfig:
    """The optimiser, with warm-up and a half cosine."""

    lr: Annotated[float | None, POSITIVE] = None
    """Peak learning rate; default: base_lr x effective batch size / 256."""
    base_lr: Annotated[float | None, POSITIVE] = None
    """Learning rate per 256 images of effective batch size, used when lr is not given; default: the preset's
    (--preset lists them); MAE of ViT-B and larger 1.5e-4 as in the paper. AdamW's that comes to more than 4e-3 is
    warned of."""
    min_lr: Annotated[float, Range(0)] = 0.0
    """Learning rate that the cosine approaches at the last step."""
    warmup: Annotated[float, Range(0, 0.999)] = 0.05
    """Share of all steps that warms up linearly, in [0, 1)."""
    warmup_epochs: Annotated[float | None, Range(0)] = None
    """Epochs that warm up linearly, instead of a share, as papers give them: a longer run then warms up no longer.
    Default: ``warmup`` counts."""
    schedule: Literal["peak_once", "peak_twice"] = "peak_once"
    """How warm-up meets cosine: MAE's code reaches the peak after the warm-up, DINO's with its last step and once more
    after it."""
    weight_decay: Annotated[float, Range(0)] = 0.05
    """Decoupled weight decay, on matrices only."""
    weight_decay_end: Annotated[float | None, Range(0)] = None
    """Weight decay that a half cosine reaches at the last step; default: the same throughout."""
    betas: Annotated[tuple[float, float], Range(0, 0.999999999)] = (0.9, 0.95)
    """AdamW's two averaging coefficients."""
    layer_decay: Annotated[float, Range(1e-6, 1)] = 1.0
    """Learning-rate factor from each block to the one below it, in (0, 1]; 1 for the same rate everywhere.
    eval/finetune.py: 0.75, MAE's for ViT-L and ViT-H and mild enough for small networks; it takes 0.65 for ViT-B."""
    name: Literal["adamw", "sgd", "lars"] = "adamw"
    """AdamW, SGD with momentum, or LARS (layer-wise adaptive rates, made for very large batches)."""
    momentum: Annotated[float, Range(0, 0.999999)] = 0.9
    """Share of the last step that SGD and LARS keep, in [0, 1)."""


@dataclass(frozen=True)
class ResolvedOptim(OptimConfig, Resolved):
    """The optimiser with a base learning rate."""

    base_lr: float = OPEN


@dataclass(frozen=True)
class FitConfig:
    """The training loop."""

    epochs: Annotated[float | None, Range(1e-9, ceiling=1e8), SAME_RUN] = None
    """Passes over the training images; default: the preset's budget of images, printed. A larger number extends a run,
    finished or not: it continues after its last step, warm-up and cosine are those of the longer run from there on, and
    so the learning rate jumps up again (printed). That is not the same as training that long from the start, and a
    number below what is already trained is refused. On labels, a length that sees a million images or more where the
    first saw fewer is another run: images then vary more."""
    min_steps: Annotated[int | None, Range(0, ceiling=10**12), SAME_RUN] = None
    """At least this many optimiser steps, however few the images (batches then cross epoch boundaries); default: 1,000
    on labels where --fit.epochs is not given, else 0."""
    batch_size: Annotated[int | None, Range(1, ceiling=1 << 22)] = None
    """Effective batch size: images per optimiser step over all processes and accumulation; default: the preset's
    (MAE: 256, digits 128, fewer where they would make less than four steps an epoch; on labels 64, from 131,072 images
    on more, 1,024 of a million)."""
    micro_batch: Annotated[int | Literal["auto"] | None, Range(1, ceiling=1 << 22), NO_EFFECT] = None
    """Images per process and forward pass; the rest of the batch is accumulated. auto: as many as fit into memory,
    found before the first step. Default: batch size / processes."""
    statistics_batch: Annotated[int | None, Range(1, ceiling=1 << 22), SAME_PROTOCOL] = None
    """Not for typing: images whose statistics were taken together (per process and forward pass, times processes),
    where the network (batch normalisation) or the loss (Sinkhorn-Knopp) takes any: they then change the results."""
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16", "fp64"] = "auto"
    """Arithmetic: auto is bf16 where the device computes faster in it (GPUs that have it, and kinds of processors that
    were measured: ssl_vit/training/products.py), else fp32; tf32 is fp32 whose matrix products round
    their factors to 10 bits (NVIDIA from Ampere on; what bf16 and fp16 leave in fp32 is multiplied so too); fp64 is for
    equality tests."""
    products: Annotated[Literal["auto", "mkl", "onednn"], NO_EFFECT] = "auto"
    """Which library multiplies matrices of single precision on a CPU; rounding alone depends on it. mkl: torch's own
    choice, MKL on processors of Intel and AMD; onednn: where it does not round factors; auto: what was measured to be
    faster on the processor's kind (ssl_vit/training/products.py)."""
    clip_grad: Annotated[float | None, POSITIVE] = None
    """Largest global gradient norm; default: no clipping."""
    clip_each: Annotated[float | None, POSITIVE] = None
    """Largest gradient norm of each parameter by itself, as DINO's code clips; default: no clipping."""
    channels_last: Annotated[bool | None, NO_EFFECT] = None
    """Keep the channels of a place together in memory (torch.channels_last) in networks other than plain ViTs; rounding
    alone depends on it. Default: on an NVIDIA GPU, whose matrix units read that layout; not on a CPU, where it
    depends on the network (benchmarks/results/layout.md)."""
    recompute: Annotated[bool, NO_EFFECT] = False
    """Activation checkpointing: keep only what enters each block and compute the rest again in the backward pass; less
    memory for mostly a tenth to a quarter more time (benchmarks/results/scale.md)."""
    shard: Annotated[bool | None, NO_EFFECT] = None
    """Several processes hold a part of every weight, gradient and average each, for networks that do not fit otherwise
    (ViT-L and larger; FSDP2), and write checkpoints together while training goes on; equal up to rounding. Default:
    whether accelerate config chose FSDP of version 2."""
    gradient_hook: Annotated[Literal["bf16"] | None, LATER] = None
    """bf16: several processes sum gradients in bf16, which halves what travels between them and rounds it to 8 bits.
    Default: they are summed as they are."""
    compile: Annotated[bool | None, NO_EFFECT] = None
    """Compile forward and backward pass (torch.compile, static shapes): some minutes at the start, then faster steps,
    equal up to rounding; short passes of one process, without accumulation, become CUDA graphs. Default: on a GPU, in
    runs of twenty minutes and more by a low estimate, unless processes hold parts of the weights (--fit.shard)."""
    profile: Annotated[bool, NO_EFFECT] = False
    """Write RUN/profile: a trace of ten steps and a page on where their time went."""
    watch: Annotated[Literal["knn"] | None, NO_EFFECT] = None
    """Pre-training alone: look now and then at what the features are worth, and write it beside the loss. knn: up to
    500 labelled training images are classified by up to 2,000 others. Nothing is chosen by it, weights are the same
    without it, and test images take no part; the images asked are pre-trained on, too. Default: not."""
    watch_percent: Annotated[float, Range(0.1, 100), NO_EFFECT] = 10.0
    """Per cent of all steps from one such look to the next; they fall on lines of metrics.jsonl (log_every)."""
    log_every: Annotated[int, Range(1), NO_EFFECT] = 10
    """Optimiser steps between lines in metrics.jsonl."""
    checkpoint_steps: Annotated[int | None, Range(1), NO_EFFECT] = None
    """Optimiser steps between checkpoints; default: by time only."""
    checkpoint_minutes: Annotated[float, Range(0), NO_EFFECT] = 10.0
    """Minutes between checkpoints."""
    keep_checkpoints: Annotated[int, Range(1), NO_EFFECT] = 2
    """How many of the newest checkpoints stay on disk."""

    max_time: Annotated[str | None, NO_EFFECT] = None
    """Time after which training saves and stops (3h50m, 90m, 2d12h), counted from the start of the process, with exit
    status 75: the same command goes on. A little less than the scheduler gives; --max_time is the same."""
    watchdog: Annotated[float | None, POSITIVE, NO_EFFECT] = None
    """Minutes without a step after which a run counts as hanging: every process writes what all of its threads are
    doing to RUN/stacks, saves nothing and ends with exit status 75. More than the longest step, look or checkpoint
    takes; a first step that compiles has half an hour more. Default: none."""
    on_divergence: Annotated[Literal["stop", "skip"], NO_EFFECT] = "stop"
    """Where loss or gradient is no finite number, or spikes (see spike): stop ends the run at its last checkpoint, skip
    goes back to it and leaves that batch out for good. The run is then one in which the batch was never drawn (on a CPU
    bit for bit), also after a later start; its images are named in RUN/diverged.jsonl. Skip looks at every step before
    it is taken, so the device waits once a step. In fp16 the gradient is not looked at: its scaler does that."""
    most_skips: Annotated[int, Range(0), NO_EFFECT] = 10
    """Batches that --fit.on_divergence skip leaves out at most; then the run ends as with stop."""
    spike: Annotated[float | None, Range(1), NO_EFFECT] = None
    """With --fit.on_divergence skip: a step whose loss or gradient norm is more than so many times the largest of the
    (at most 100, at least 20) sound steps before it counts as diverged, too. Default: only what is no finite number."""

    @property
    def given_micro_batch(self) -> int | None:
        """The number that was given, if any: auto never takes statistics over fewer images than without it."""
        return None if self.micro_batch == "auto" else self.micro_batch


@dataclass(frozen=True)
class ResolvedFit(FitConfig, Resolved):
    """The training loop with its length and batch."""

    epochs: float = OPEN
    min_steps: int = OPEN
    batch_size: int = OPEN
