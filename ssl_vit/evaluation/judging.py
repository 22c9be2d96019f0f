"""The trunk of every evaluation: a backbone and labelled images in; table, result file and answers out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from ssl_vit.configs import KNNRecipe, LinearRecipe, flat, to_dict
from ssl_vit.configs.metrics import KINDS, METRICS
from ssl_vit.configs.protocols import PROTOCOLS, Protocol
from ssl_vit.core import sums
from ssl_vit.core.errors import UserError
from ssl_vit.data.images import ImageSet
from ssl_vit.data.leading import led_by
from ssl_vit.evaluation.answers import Answers, save_answers
from ssl_vit.evaluation.metrics import columns
from ssl_vit.evaluation.printing import conclusion, print_table
from ssl_vit.evaluation.session import announce, open_session
from ssl_vit.exports.card import tell_results
from ssl_vit.leaks.guard import Omission
from ssl_vit.methods.method import imported
from ssl_vit.methods.supervised import FinetuneRecipe
from ssl_vit.runs import lock
from ssl_vit.runs.directory import RunDir
from ssl_vit.runs.identity import differences
from ssl_vit.runs.results import read_results
from ssl_vit.training import launch
from ssl_vit.training.trackers import follow

_OTHER = re.compile(r"-(on-[0-9a-f]{8})")
"""In the name of a result on other images than those of the run (``Session.suffix``)."""


class Judged(NamedTuple):
    """What a protocol found."""

    rows: list[dict[str, Any]]
    """One per method, the backbone's first; a row whose ``headline`` is False stands in a second table."""
    options: dict[str, Any]
    """Everything that gives the numbers their meaning."""
    title: str
    """Of the table: what was done, in words."""
    answers: Answers
    """The backbone's, for every test image."""
    headings: dict[str, str]
    """Keys and headings of the table's columns before the metrics; those that no row has are left out."""
    selection: str | None = None
    """How options were chosen, where ``options`` does not say it."""
    run: RunDir | None = None
    """Where the result belongs, if not to the backbone's run."""
    size: int | None = None
    """Side of the input in pixels, if not the backbone's."""
    left: str = ""
    """What was written beside the result, in words."""


class Evaluated(NamedTuple):
    """A number and where it is."""

    path: Path
    """The result file."""
    rows: list[dict[str, Any]]
    """One per method, the backbone's first; empty on processes other than the main one."""
    metric: str
    """The key in ``rows`` that the table leads with."""
    run: RunDir
    """Where it was made."""


def evaluate(cfg: KNNRecipe | LinearRecipe | FinetuneRecipe, protocol: Protocol, name: str | None = None) -> Evaluated:
    """Judges a backbone, and what stands beside it, by one protocol of ``configs.protocols.PROTOCOLS``.

    Args:
        cfg: Options of the protocol.
        protocol: Which.
        name: Of the result file below results/, where it is not the usual one; of what has no run of its own.

    Raises:
        UserError: For a backbone, images or options that the protocol cannot use.
    """
    _refuse_without_effect(cfg, protocol)
    fit = None if isinstance(cfg, KNNRecipe) else cfg.fit
    accelerator = launch.join("fp32", cfg.seed) if fit is None else launch.join(fit.precision, cfg.seed, fit.products)
    size = cfg.model.img_size if isinstance(cfg, FinetuneRecipe) else None
    session = open_session(
        cfg.backbone, cfg.eval, cfg.run, main=accelerator.is_main_process, device=accelerator.device, img_size=size
    )
    data = session.data
    if data.train.kind not in protocol.kinds:
        wanted = " or ".join(KINDS[kind] for kind in protocol.kinds)
        raise UserError(
            f"{protocol.method} is for images with {wanted} each, and these have {KINDS[data.train.kind]}; "
            "use --linear.protocol cached"
        )
    launch.use_cores(accelerator, size or session.exported.size)
    if accelerator.is_main_process:
        if not isinstance(cfg, FinetuneRecipe):  # which has a directory of its own
            lock.hold_for_results(session.run.path)
            follow(session.run, cfg)
        announce(session, size)
    judged: Judged = imported(protocol.run)(cfg, session, accelerator)
    result = session.result(protocol.method, judged.rows, judged.options, cfg.seed, size=judged.size)
    run, file = judged.run, protocol.result
    if run is None:
        run, file = session.run, name or f"{file}{session.suffix(cfg.seed)}"
    return finish(judged, result, data.test, session.metric, run, file, session.omission)


def finish(
    judged: Judged,
    result: dict[str, Any],
    test: ImageSet,
    metric: str,
    run: RunDir,
    name: str,
    omission: Omission | None = None,
) -> Evaluated:
    """Writes ``result``, the answers, what was left out and the model cards; prints; on the main process alone."""
    told = _replaced(run.path / "results" / f"{name}.json", result) if run.writes else ""
    path = run.write_result(name, result | ({"selection": judged.selection} if judged.selection else {}))
    if not run.writes:
        return Evaluated(path, [], metric, run)
    tell_results(run.path)
    if omission and not omission.kept:
        alone, other = path.parent == run.path / "results", _OTHER.search(name)
        if alone and not other:
            omission.write(run.path)
        else:  # each of several sets has its own
            place = run.path if alone else path.parent
            print(f"left out        {omission.write(place, f'{other[1] if alone and other else path.stem}-')}")
    save_answers(path, judged.answers)
    sums.note(path.parent, [path.with_suffix(".npz").name])
    shown = judged.headings | columns(test.kind, metric)
    heads = [row for row in judged.rows if row.get("headline", True)]
    print_table(f"{test.name}: {judged.title}{led_by(metric, test)}", heads, shown)
    if all(row.get(metric) is None for row in heads):
        print(f"{METRICS[metric].words} has no value for the labels of these {len(test):,} test images")
    if said := conclusion(heads, metric):
        print(said)
    others = [row for row in judged.rows if row not in heads and row["method"] == judged.rows[0]["method"]]
    if others:
        print_table("others, for comparison; all rows are in the result file", others, shown)
    if told:
        print(told)
    print(f"Result: {path}{judged.left and f'   {judged.left}'}")
    return Evaluated(path, judged.rows, metric, run)


def _replaced(path: Path, result: dict[str, Any]) -> str:
    """What is said where a result of other options stood in the file that is written; empty where none did."""
    if not path.exists():
        return ""
    try:
        [before] = read_results([path])
    except UserError:  # damaged, or another version's
        return ""
    told = differences(before.protocol, result["protocol"])
    return told and (
        f"note: this replaces the result of other options ({told}) that stood in this file; with --run.dir both stay"
    )


def _refuse_without_effect(cfg: KNNRecipe | LinearRecipe | FinetuneRecipe, protocol: Protocol) -> None:
    """An option that was changed for nothing is a mistake, in groups that any protocol of its use reads."""
    groups = {read.partition(".")[0] for one in PROTOCOLS.values() if one.use == protocol.use for read in one.reads}
    usual, given = flat(to_dict(type(cfg)())), flat(to_dict(cfg))
    for name, value in given.items():
        group = name.partition(".")[0]
        if group in groups and not {group, name} & {*protocol.reads, "fit.precision"} and value != usual.get(name):
            raise UserError(
                f"--{name} has no effect with --linear.protocol {protocol.name}, which reads "
                f"{', '.join(sorted(f'--{read}' for read in protocol.reads))}"
            )
