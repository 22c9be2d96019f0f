"""Judges one backbone on every set of a suite; what one set fails by is told, and the others go on."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ssl_vit.configs import DataConfig, LabelledDataConfig, RunConfig, TransferRecipe, to_dict
from ssl_vit.configs.metrics import shown
from ssl_vit.core.dist import gather_rows, rank_and_world
from ssl_vit.core.errors import UserError, reason
from ssl_vit.core.files import write_atomically, write_bytes_atomically
from ssl_vit.data.sources.opening import Labelled
from ssl_vit.evaluation.judging import evaluate
from ssl_vit.evaluation.printing import print_table
from ssl_vit.evaluation.transfer.allowed import Config
from ssl_vit.evaluation.transfer.opened import open_set
from ssl_vit.evaluation.transfer.real import HEADING, WORDS, Right, real_accuracy, right_answers
from ssl_vit.evaluation.transfer.suite import Entry, Suite
from ssl_vit.evaluation.transfer.table import COLUMNS, Row, Transfer, row_of, transfer_table
from ssl_vit.exports.origin import own_data
from ssl_vit.exports.timm_folder import Exported
from ssl_vit.leaks.guard import left_of, on_leak
from ssl_vit.released.starts import load_start
from ssl_vit.runs import lock
from ssl_vit.runs.arrays import read_arrays
from ssl_vit.runs.directory import RunDir
from ssl_vit.runs.identity import digest
from ssl_vit.runs.results import read_results
from ssl_vit.training import launch

FOLDER = "transfer"
"""Below RUN/results: tables of suites, and below it ``sets``: results of single sets. Below RUN: what was trained."""


def judge_suite(cfg: TransferRecipe, suite: Suite) -> Transfer | None:
    """Judges, prints the table, and writes it to RUN/results/transfer/SUITE-DIGEST.json and .md.

    A set that was judged before with the same options, weights and images is not judged again. With several processes
    a set fails on all of them alike: what one of them alone can find wrong (a disk that is full, images that cannot be
    read while they are streamed to training) ends the command.

    Args:
        cfg: What ``--help`` lists.
        suite: What ``read_suite`` made of it.

    Returns:
        The table; None on processes other than the main one.

    Raises:
        UserError: For a backbone that cannot be used; at the end, on the main process, where sets have failed.
    """
    exported, accelerator = load_start(cfg.backbone), launch.join(seed=cfg.seed)
    main, device = accelerator.is_main_process, accelerator.device
    root = Path(cfg.run.dir).expanduser() if cfg.run.dir else exported.place
    if main:
        lock.hold_for_results(root)
    rows: list[Row] = []
    for number, entry in enumerate(suite.entries, 1):
        if main:
            what = f"{entry.name} ({number} of {len(suite.entries)})"
            print(f"\n{what}: {entry.protocol.method} on {entry.path}", flush=True)
        launch.forget_what_was()  # a set after another is as if it were alone
        try:
            rows.append(_judged(entry, exported, root, cfg.run, device))
        except (UserError, OSError) as error:
            why = _one_line(error)
            rows.append(Row(entry.name, entry.group, entry.protocol.method, failed=why))
            if main:
                sys.stderr.write(f"failed: {entry.name}: {why}\n")
    if not main:
        return None
    table = transfer_table(f"{_called(exported)} on {suite.name}", rows)
    _tell(table, RunDir(root, True), suite, exported)
    if failed := [row.name for row in rows if row.failed]:
        raise UserError(
            f"{len(failed)} of {len(rows)} sets failed ({', '.join(failed)}); the same command judges these alone, and "
            "keeps the others"
        )
    return table


def _called(exported: Exported) -> str:
    """The run's name, or that of the weights."""
    folder = exported.folder.resolve()
    return folder.parent.name if folder.name == "backbone" else folder.name


def _one_line(error: UserError | OSError) -> str:
    """What is wrong, without the list that some errors end with."""
    if isinstance(error, OSError):
        return f"{error.filename or 'its files'}: {reason(error)}"
    first, _, more = str(error).partition("\n")
    return first.removesuffix(":") if more else first


def _judged(entry: Entry, exported: Exported, root: Path, run: RunConfig, device: torch.device) -> Row:
    """One set: its kept result, or a new one (every process must call it)."""
    data, named = own_data(exported.about, entry.config.eval.data)
    opened = open_set(data, named)
    right = None if entry.real is None else right_answers(entry.real, opened.test)  # its mistakes come before the work
    config = _capped(entry, data, named, opened, device)
    name = f"{entry.slug}-{_key(entry, config, opened, exported.weights_hash)[:8]}"
    path = root / "results" / FOLDER / "sets" / f"{name}.json"
    found = torch.tensor([_is_there(path)], device=device)
    kept, main = bool(gather_rows(found).all()), rank_and_world()[0] == 0  # all must go the same way
    if not kept:
        trains = entry.protocol.use == "train"
        place = root / FOLDER / name if trains else root
        config = replace(config, run=replace(run, dir=str(place)))
        judged = evaluate(config, entry.protocol, None if trains else f"{FOLDER}/sets/{name}")
        if main and judged.path != path:  # answers first, so that a result that is there is whole
            write_bytes_atomically(path.with_suffix(".npz"), judged.path.with_suffix(".npz").read_bytes())
            write_atomically(path, judged.path.read_text(encoding="utf-8"))
    if not main:  # and no process waits for it: what it alone can find wrong must not keep the others
        return Row(entry.name, entry.group, entry.protocol.method)
    if kept:
        print(f"kept from before: {path}", flush=True)
    row = row_of(entry.name, entry.group, read_results([path])[0], result=str(path.relative_to(root)), kept=kept)
    return row if entry.real is None or right is None else _by_several(row, entry.real, right, path)


def _capped(
    entry: Entry, data: DataConfig, named: LabelledDataConfig, opened: Labelled, device: torch.device
) -> Config:
    """The options, with a draw of labels where a set has more than are wanted, also without those that are left out."""
    if entry.most is None or entry.most >= len(opened.train):
        return entry.config
    if entry.most >= left_of(opened, on_leak(data, named), data.workers, device):
        return entry.config
    return replace(entry.config, eval=replace(entry.config.eval, labels=entry.most))


def _key(entry: Entry, config: Config, opened: Labelled, weights: str) -> str:
    """All that a set's result depends on; its images by their content's fingerprints, wherever they lie."""
    values: dict[str, Any] = to_dict(replace(config, backbone="", run=RunConfig()))
    values["eval"]["data"]["path"] = None
    return digest([entry.protocol.method, values, weights, opened.train.fingerprint, opened.test.fingerprint])


def _is_there(path: Path) -> bool:
    """Whether a result is kept, and whole."""
    try:
        (found,) = read_results([path])
        return set(_answers(path)) >= {"positions", *["predicted"] * (found.protocol["kind"] == "class")}
    except UserError:  # missing, damaged, or another version's
        return False


def _answers(path: Path) -> dict[str, np.ndarray]:
    """Of every test image, beside a result."""
    return read_arrays(path.with_suffix(".npz"), "remove it and type the command again")


def _by_several(row: Row, file: Path, right: Right, path: Path) -> Row:
    """The row of a set whose test images may have several right answers, with the accuracy by one as its note."""
    kept = _answers(path)
    found = real_accuracy(kept["predicted"], [right.of_each[i] for i in kept["positions"].tolist()])
    print(
        f"{row.name}: {WORDS} {found.accuracy:.1f} % on {found.images:,} images; {found.skipped:,} have no label there"
    )
    note = f"{found.skipped:,} of {found.images + found.skipped:,} test images have no label in {file.name}"
    note += f" and are left out; {row.heading.removesuffix(' %')} by one label is {row.shown}"
    if right.strange:
        note += f"; {right.strange:,} of the {right.names:,} names in {file.name} are no test image's"
    note = "; ".join(filter(None, (row.note, note)))
    shown_value = shown("top1", found.accuracy)
    return replace(row, heading=HEADING, value=found.accuracy, shown=shown_value, images=found.images, note=note)


def _tell(table: Transfer, run: RunDir, suite: Suite, exported: Exported) -> None:
    """Prints and writes the table."""
    about = {"folder": str(exported.folder), "weights": exported.weights_hash}
    told = {"suite": suite.name, "asked": suite.asked, "backbone": about, **table.data()}
    path = run.write_result(f"{FOLDER}/{suite.file}", told)
    write_atomically(path.with_suffix(".md"), table.markdown())
    print()
    print_table(table.title, list(table.lines), COLUMNS)
    for note in table.notes:
        print(f"- {note}")
    print(f"Table: {path.with_suffix('.md')}   {path}")
