"""Trains one command over options and seeds, each run in a directory of its own, and ends with a table of settings.

ssl-vit sweep mae --data.path IMAGES --over optim.base_lr=1e-3,2e-3 --seeds 3 --judge knn --out sweeps/one
Options of the sweep and of the command may stand in any order. The same command goes on where an earlier start ended.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from ssl_vit.configs import ModelConfig, networks
from ssl_vit.configs.facts import options
from ssl_vit.core.errors import UserError, did_you_mean
from ssl_vit.core.files import refuse_address
from ssl_vit.engines.elsewhere import EXECUTORS, Executor, check_executor, elsewhere
from ssl_vit.engines.local import Local
from ssl_vit.methods import METHODS, known_recipes
from ssl_vit.script import WordsParser, check_options, mistakes_told
from ssl_vit.sweep.plan import JUDGES, Asked, Plan, make_plan, remember


def main(plan: Plan, at_once: int | None = None, executor: Executor = "local", job: Sequence[str] = ()) -> None:
    """A plan in; runs, table.csv, table.md and table.tex out.

    Args:
        plan: The runs.
        at_once: Runs at the same time; None for one on this machine, and for as many as another engine takes.
        executor: Where they run.
        job: NAME=VALUE each, what every run asks of submitit or Ray.

    Raises:
        SystemExit: With status 1 where a run has failed, and after a signal.
    """
    from ssl_vit.runs import lock
    from ssl_vit.sweep.course import Course
    from ssl_vit.sweep.outcome import FILES, outcome
    from ssl_vit.sweep.places import shares

    _check_networks(plan)
    out = plan.asked.out
    lock.hold_for_results(out, "--out")
    remember(plan)
    here = executor == "local"
    engine = Local(shares(at_once or 1)) if here else elsewhere(executor, job, out / "jobs", at_once)
    course = Course(plan, engine, lambda line: print(line, flush=True))
    judged = "; judged on a fifth of the training labels, for choosing without the test images" * plan.held_out
    print(f"{len(plan.children)} runs in {out / 'runs'}, {len(plan.settings)} setting(s){judged}", flush=True)
    with closing(engine):
        course.run()
    found = outcome(plan, course.failed)
    for name in FILES:
        found.written.write(out / name)
    print("\n" + found.written.text() + "\n")
    print("\n".join([*found.said, f"Table: {', '.join(str(out / name) for name in FILES)}"]))
    if course.failed:
        raise UserError(
            f"{len(course.failed)} of {len(plan.children)} runs failed ({', '.join(c.name for c in course.failed)}); "
            "the others are finished, and the same command tries these again"
        )


def _check_networks(plan: Plan) -> None:
    """Refuses varied networks that timm does not know, or that are not enough for the method."""
    command = plan.asked.command
    models = {networks.wanted(child.config.model)[0]: child.config.model for child in plan.children
              if isinstance(child.config.model, ModelConfig)}  # fmt: skip
    if len(models) > 1:
        from ssl_vit.models.build import model_facts

        for model in models.values():
            model_facts(*networks.wanted(model), needs=METHODS[command].needs if command in METHODS else "pooled")


def asked_for(words: list[str] | None = None) -> tuple[Plan, dict[str, Any]]:
    """What a person typed.

    Args:
        words: Behind the name of the command; default: ``sys.argv[1:]``.

    Returns:
        The runs, and how they are to be run: arguments of ``main``.

    Raises:
        UserError: For the first thing that no run could be started with.
    """
    parser = WordsParser(__doc__)
    parser.allow_abbrev = False
    parser.add_argument("command", help="what trains: a method, supervised or finetune; its options as usual")
    parser.add_argument(
        "--over", action="append", default=[], metavar="NAME=VALUE,VALUE", help="vary an option; several times: a grid"
    )
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="runs of every setting (default: 1)")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where runs, logs and tables go")
    parser.add_argument("--judge", choices=JUDGES, help="judge every pre-trained network")
    parser.add_argument(
        "--on_test", action="store_true", help="judge several settings on the test images, not on held-out labels"
    )
    parser.add_argument("--at_once", type=int, metavar="N", help="runs at the same time (default: 1; elsewhere: all)")
    parser.add_argument(
        "--executor", choices=EXECUTORS, default="local", help="where runs go: this machine, jobs of SLURM, Ray"
    )
    parser.add_argument(
        "--job", action="append", default=[], metavar="NAME=VALUE", help="of jobs: timeout_min=720; of Ray: num_gpus=1"
    )
    given, others = parser.parse_known_args(sys.argv[1:] if words is None else words)
    own = [name[2:] for action in parser._actions for name in action.option_strings]
    theirs = {"config", *(name for recipe in known_recipes() for name in options(recipe))}
    for name in (word[2:].partition("=")[0] for word in others if word.startswith("--")):
        if name not in theirs and "." not in name and (close := did_you_mean(f"--{name}", [f"--{one}" for one in own])):
            raise UserError(f"unknown option --{name}{close}")
    if given.at_once is not None and given.at_once < 1:
        raise UserError(f"--at_once {given.at_once} must be at least 1")
    refuse_address("--out", given.out)
    plan = make_plan(
        Asked(given.command, tuple(others), tuple(given.over), Path(given.out).expanduser(), given.seeds, given.judge,
              given.on_test)
    )  # fmt: skip
    for child in plan.children:
        check_options(child.config)
    check_executor(given.executor, given.job)
    return plan, {"at_once": given.at_once, "executor": given.executor, "job": given.job}


check_words = asked_for  # what is asked before a job waits for it


def command(words: list[str] | None = None) -> None:
    """What a person types, with its mistakes told in one line.

    Args:
        words: Behind the name of the command; default: ``sys.argv[1:]``.
    """
    with mistakes_told(2):
        plan, how = asked_for(words)
    with mistakes_told():
        main(plan, **how)


if __name__ == "__main__":
    command()
