"""The collector of cycles waits while a script imports, and works as usual from then on."""

from __future__ import annotations

import gc
import subprocess
import sys

from ssl_vit.core import garbage


def test_what_a_script_needs_is_imported_nearly_without_searches_and_then_they_are_usual() -> None:
    program = (
        "import gc, sys\n"
        "from ssl_vit.methods.mae import MAERecipe\n"
        "from ssl_vit.script import run_script\n"
        "usual = gc.get_threshold()\n"
        "def main(cfg):\n"
        "    before = gc.get_stats()[0]['collections']\n"
        "    import ssl_vit.training.pretraining\n"
        "    from ssl_vit.training import launch\n"
        "    print(gc.get_stats()[0]['collections'] - before)\n"
        "    launch.join()\n"
        "    print(gc.get_threshold() == usual, gc.get_freeze_count() > 100_000)\n"
        "run_script(main, MAERecipe, '', [])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    searches, after = done.stdout.splitlines()
    assert int(searches) < 100  # a thousand as Python does it
    assert after == "True True"
    assert "leaked" not in done.stderr  # as libraries say of what is left at the end of a process


def test_a_process_that_asked_for_other_searches_keeps_them() -> None:
    usual, kept = gc.get_threshold(), gc.get_freeze_count()
    try:
        gc.set_threshold(123)
        garbage.as_usual()
        assert gc.get_threshold()[0] == 123
        assert gc.get_freeze_count() == kept
    finally:
        gc.set_threshold(*usual)
