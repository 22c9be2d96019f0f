"""A short pre-training run on images that are elsewhere, read in small blocks, and killed after a step."""

from __future__ import annotations

PROGRAM = """
import runpy, os, signal, sys
from ssl_vit.data.sources import remote
from ssl_vit.objectives.mae import MAE

remote.BLOCK, remote.PATIENCE, remote._FIRST_WAIT = 2**14, 1.0, 0.0
at = int(sys.argv.pop(1))

def after_step(self, clock):
    if clock.step == at:
        os.kill(os.getpid(), signal.SIGKILL)

MAE.after_step = after_step
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
WORDS = [
    "--model.width", "16", "--model.depth", "1", "--model.heads", "2", "--model.img_size", "16", "--model.patch_size",
    "8", "--fit.batch_size", "8", "--fit.epochs", "0.000001", "--fit.min_steps", "20", "--fit.checkpoint_steps", "6",
    "--fit.log_every", "1",
]  # fmt: skip
