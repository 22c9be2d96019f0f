"""What a checkpoint of a training holds, and how a run goes on from one: after any end, and after a step it gave up."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from ssl_vit.core.dist import gather_lists, gather_rows
from ssl_vit.core.errors import Diverged, UserError
from ssl_vit.core.parts import like
from ssl_vit.data.loading.loader import Loader
from ssl_vit.runs import diverged
from ssl_vit.runs.directory import RunDir
from ssl_vit.training.checkpoint import load_checkpoint, put_aside, remove_halves, save_checkpoint
from ssl_vit.training.checkpoint import remove as remove_file
from ssl_vit.training.divergence import Soundness, Unsound
from ssl_vit.training.optim import restore
from ssl_vit.training.shards import newest_whole, remove
from ssl_vit.training.stepping import Stepper

if TYPE_CHECKING:
    from ssl_vit.training.sharded_checkpoint import ShardedCheckpoints

CHECKPOINTS = "checkpoints"
"""In the run's directory."""
_NEEDED = ("objective", "optimizer")
"""What a checkpoint must hold."""


def kept_tensor(folder: Path, name: str) -> Tensor | None:
    """A tensor of the objective in the newest sound checkpoint, as it was saved; None where there is none.

    Args:
        folder: Where checkpoints of the run are.
        name: In the objective's state dict.
    """
    found = newest_whole(folder)
    state = load_checkpoint(folder, _NEEDED)
    if state is not None and (found is None or cast(int, state["step"]) >= found[0]):
        return cast("dict[str, Tensor]", state["objective"]).get(name)
    if found is None:
        return None
    from ssl_vit.training.sharded_checkpoint import read_one

    return read_one(found[1], f"objective.{name}")


def copied(state: Any) -> Any:
    """The same containers with copies of their tensors on the host, which later steps leave as they are."""
    if isinstance(state, Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, dict):
        same = copy(cast("dict[Any, Any]", state))  # of the same class, with what else it carries
        same.update({name: copied(value) for name, value in same.items()})
        return same
    if isinstance(state, list | tuple):
        return type(state)(map(copied, cast("list[Any]", state)))
    return state


class Saving:
    """Checkpoints of one training in its run's directory, and which batches it never draws."""

    def __init__(
        self, stepper: Stepper, run: RunDir, loader: Loader, steps: int, soundness: Soundness | None = None
    ) -> None:
        """Reads and writes nothing yet.

        Args:
            stepper: Whose state is saved and restored.
            run: Where.
            loader: Leaves batches out.
            steps: Of the whole run.
            soundness: What it remembers is saved too, where steps are judged.
        """
        self.stepper, self.run, self.loader, self.steps, self.soundness = stepper, run, loader, steps, soundness
        self.folder = run.path / CHECKPOINTS
        self.together = self._of_all()
        """Writes checkpoints where every process has a part; None where the main process has all."""
        alone = self.together is None and stepper.accelerator.device.type == "cuda"
        self.writer = ThreadPoolExecutor(1, "checkpoint") if alone else None
        """Writes beside the next steps, where a copy of the state leaves the device as it is; None: in between."""
        self._writing: Future[None] | None = None
        self.saved = 0
        """Steps that the newest checkpoint holds, or will when it is written, on the process that knows."""

    def _of_all(self) -> ShardedCheckpoints | None:
        stepper = self.stepper
        if stepper.sharding is None:
            return None
        from ssl_vit.training.sharded_checkpoint import ShardedCheckpoints

        main = stepper.accelerator.is_main_process
        return ShardedCheckpoints(self.folder, stepper.sharding.group, stepper.fit.keep_checkpoints, main)

    def save(self, step: int) -> None:
        """Writes a checkpoint after so many steps: the main process alone, or all together where each has a part.

        Every checkpoint names the batches that were left out before it, beside the record of them.
        """
        stepper, objective = self.stepper, self.stepper.objective
        if not (self.run.writes or self.together):
            return
        rest: dict[str, Any] = {"total_steps": self.steps}
        if stepper.continuing is not None:
            rest["drift"] = stepper.continuing.drift.state()
        if stepper.accelerator.scaler is not None:
            rest |= {"scaler": stepper.accelerator.scaler.state_dict(), "skipped_steps": int(stepper.skipped)}
        if self.soundness is not None:
            rest["recent"] = self.soundness.state()
        if self.loader.left_out:
            rest["left_out"] = list(self.loader.left_out)
        own, optimizer = objective.state_dict(), stepper.optimizer.state_dict()
        if self.together is None:
            state = {"objective": own, "optimizer": optimizer, **rest}
            if self.writer is None:
                self._write(step, state)
            else:
                self.finish()  # one at a time, so that the older is whole before the newer begins
                self._writing = self.writer.submit(self._write, step, copied(state))
        else:
            averages = {
                f"optimizer.{number}.{name}": value
                for number, kept in optimizer["state"].items()
                for name, value in kept.items()
            }
            tensors = {**{f"objective.{name}": value for name, value in own.items()}, **averages}
            self.together.save(step, tensors, rest | {"param_groups": optimizer["param_groups"]})
            self._forget_other_kind(step, "step_*.shards", "step_*.pt", remove_file)
        self.saved = step

    def _write(self, step: int, state: dict[str, Any]) -> None:
        save_checkpoint(self.folder, step, state, self.stepper.fit.keep_checkpoints)
        self._forget_other_kind(step, "step_*.pt", "step_*.shards", remove)

    def _forget_other_kind(self, step: int, kind: str, other: str, forget: Callable[[Path], object]) -> None:
        """A run that goes on with another kind of checkpoint keeps the old ones until it has enough new ones."""
        ending = f"{Path(kind).suffix.removesuffix('.pt')}.sha256"
        sound = [path for path in self.folder.glob(kind) if path.with_suffix(ending).exists()]
        if self.run.writes and len(sound) >= self.stepper.fit.keep_checkpoints:
            for path in self.folder.glob(other):
                if path.stem[5:].isdigit() and int(path.stem[5:]) < step:
                    forget(path)

    def finish(self) -> None:
        """Waits for a checkpoint that is being written, and raises what it met; every process must call it."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()
        if self.together is not None:
            self.together.finish()

    def close(self) -> None:
        """After the last step, or whatever ended the run: nothing is written any more; says what went wrong."""
        if self.writer is None:
            return
        try:
            if self._writing is not None:
                self._writing.result()
        except Exception as error:  # beside another error, or it would have been raised before
            sys.stderr.write(f"warning: the checkpoint of step {self.saved:,} was not written: {error}\n")
        self._writing = None
        self.writer.shutdown()

    def _newest(self) -> dict[str, Any] | None:
        """The newest sound checkpoint of either kind, laid out as the objective is now."""
        found = newest_whole(self.folder)
        state = load_checkpoint(self.folder, _NEEDED)
        if found is None or (state is not None and cast(int, state["step"]) >= found[0]):
            return state
        from ssl_vit.training.sharded_checkpoint import read

        own, order = self.stepper.objective.state_dict(), self._parameters()

        def room(name: str, size: torch.Size, dtype: torch.dtype) -> Tensor:
            first, _, rest = name.partition(".")
            as_it_is = own.get(rest) if first == "objective" else order[int(rest.partition(".")[0])].detach()
            if as_it_is is None or as_it_is.shape != size:  # the optimiser's counters
                return torch.empty(size, dtype=dtype)
            return torch.empty_like(as_it_is, dtype=dtype)

        tensors, rest = read(found[1], room, None if self.together is None else self.together.group)
        averages: dict[int, dict[str, Tensor]] = {}
        objective: dict[str, Tensor] = {}
        for name, value in tensors.items():
            first, _, inner = name.partition(".")
            if first == "objective":
                objective[inner] = value
            else:
                number, _, what = inner.partition(".")
                averages.setdefault(int(number), {})[what] = value
        optimizer = {"state": averages, "param_groups": rest.pop("param_groups")}
        return {**rest, "objective": objective, "optimizer": optimizer}

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.stepper.optimizer.param_groups for p in group["params"]]

    def resume(self, rates: Callable[[int, int], float]) -> int:
        """Loads the newest sound checkpoint and returns its step; 0 where there is none.

        Args:
            rates: The learning rate of a step in a run of so many.

        Raises:
            UserError: Where the run is longer than was asked for, a checkpoint cannot be read, or processes find
                different ones.
        """
        run, steps = self.run, self.steps
        told = [json.dumps(diverged.batches_left_out(run.path))] if self.stepper.accelerator.is_main_process else []
        for batches in gather_lists(told):  # the main process writes it, so it knows
            self.loader.leave_out(json.loads(batches))
        state = self._newest()
        done = 0 if state is None else cast(int, state["step"])
        if done > steps:
            raise UserError(
                f"{run.path} has already trained {done:,} steps, more than the {steps:,} asked for; a run can be "
                "extended but not shortened: give at least its --fit.epochs, or another --run.dir"
            )
        if state is not None:
            self._restore(state)
            if self.stepper.accelerator.is_main_process:
                print(f"the run in {run.path} {self._words(state, rates)}", flush=True)
        self._agree(done)
        if run.writes:  # it holds the run, and all have looked
            remove_halves(self.folder)
            if state is None:
                put_aside(self.folder)
        run.confirm()
        run.rewind(done)
        self.stepper.accelerator.wait_for_everyone()
        self.saved = done
        return done

    def go_back(self, step: int, error: Unsound, about: dict[str, Any], most: int, tell: Callable[[str], None]) -> int:
        """Leaves out what a step drew, loads the newest sound checkpoint and returns its step; every process must.

        What is left out is on the disk before anything else happens.

        Args:
            step: Not taken, 0-based.
            error: Why.
            about: What else is recorded; its ``images`` are the batch's.
            most: Batches that may be left out.
            tell: Says a line to people.

        Raises:
            Diverged: Where so many are left out already; the images are named all the same.
        """
        self.finish()
        batch, left_out, writes = self.loader.number(step), self.loader.left_out, self.run.writes
        norm, loss = (value if math.isfinite(value) else None for value in (error.norm, error.loss))
        about = {
            "step": step + 1,
            "why": str(error),
            "loss": loss,
            "gradient_norm": norm,
            "back_to": self.saved,
            **about,
        }
        if len(left_out) >= most:
            if writes:
                diverged.tell(self.run.path, about)
            raise Diverged(
                f"step {step + 1:,}: {error}, and {len(left_out)} batch(es) are left out already (--fit.most_skips "
                f"{most}; their images are in {self.run.path / diverged.NAME}); lower --optim.lr, set --fit.clip_grad "
                "1, or use --fit.precision fp32"
            )
        if writes:
            diverged.tell(self.run.path, {"batch": batch, **about})
            self.run.record("left_out_batches", len(left_out) + 1)
        self.loader.leave_out([batch])
        self.stepper.give_up()
        self.stepper.accelerator.wait_for_everyone()
        state = self._newest()
        if state is None:
            raise UserError(f"there is no sound checkpoint in {self.folder} to go back to")
        done = cast(int, state["step"])
        self._restore(state)
        self._agree(done)
        self.run.rewind(done)
        self.stepper.accelerator.wait_for_everyone()
        self.saved = done
        tell(
            f"step {step + 1:,}: {error}; its {len(about['images']):,} images are named in "
            f"{self.run.path / diverged.NAME}. Back to step {done:,}, and on without that batch "
            f"({len(self.loader.left_out)} of at most {most} left out)"
        )
        return done

    def _restore(self, state: dict[str, Any]) -> None:
        stepper, order = self.stepper, self._parameters()
        if self.together is not None:  # a file has whole ones
            own = stepper.objective.state_dict()
            state["objective"] = {name: like(value, own[name]) for name, value in state["objective"].items()}
            for number, kept in state["optimizer"]["state"].items():
                for name, value in kept.items():
                    if value.shape == order[number].shape:
                        kept[name] = like(value, order[number])
        stepper.objective.load_state_dict(state["objective"])
        restore(stepper.optimizer, state["optimizer"])
        if stepper.continuing is not None:
            stepper.continuing.drift.load(state["drift"])
        if stepper.accelerator.scaler is not None and "scaler" in state:
            stepper.accelerator.scaler.load_state_dict(state["scaler"])
            stepper.skipped = cast(int, state.get("skipped_steps", 0))
        if self.soundness is not None:
            self.soundness.load(state.get("recent", []))
        self.loader.leave_out(state.get("left_out", []))

    def _agree(self, done: int) -> None:
        steps = gather_rows(torch.tensor([done], device=self.stepper.accelerator.device)).tolist()
        if len(set(steps)) > 1:
            raise UserError(
                f"the processes find different checkpoints in {self.run.path}; it must be on a disk they share"
            )

    def _words(self, state: dict[str, Any], rates: Callable[[int, int], float]) -> str:
        """How the run goes on from a checkpoint."""
        done, steps, drift = cast(int, state["step"]), self.steps, self.stepper.continuing
        ended = drift is not None and drift.drift.passed is not None
        over = done == steps or ended
        what = "is already complete" if over else f"continues after step {done:,} of {steps:,}"
        before = cast(int, state.get("total_steps", steps))
        if ended:
            what += f": its drift alarm ended it after step {done:,}"
        elif before != steps and over:
            what += f", though its learning rate follows a schedule of {before:,} steps"
        elif before != steps:
            what += (
                f"; the learning rate follows the schedule of {steps:,} steps instead of {before:,} from here on: "
                f"{rates(done - 1, before):.3g} at the last step, {rates(done, steps):.3g} at the next; so does "
                "everything else that is scheduled"
            )
        if self.loader.left_out:
            what += f"; {len(self.loader.left_out)} batch(es) are left out ({diverged.NAME})"
        if (self.run.backbone / "config.json").exists() and not over:
            what += "; the backbone will be replaced"
        return what
