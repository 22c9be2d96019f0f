"""Prints a batch script for SLURM that runs a command, and goes on in another job when its time is over.

ssl-vit slurm --nodes 2 --gpus 8 --time 12:00:00 mae --data.path IMAGES > job.sbatch
Options of the job stand before the command, and those of the command behind it.
"""

from argparse import REMAINDER
from dataclasses import fields

from ssl_vit.core.sbatch import Batch
from ssl_vit.script import WordsParser, mistakes_told


def main(batch: Batch, words: list[str]) -> None:
    """What to ask for and a command in, the script on the screen out.

    Args:
        batch: What to ask SLURM for.
        words: Command and options.
    """
    import shutil
    import sys

    from ssl_vit.core.sbatch import script
    from ssl_vit.script import check_words

    check_words(words)
    program = shutil.which("ssl-vit")
    print(script(batch, [*([program] if program else [sys.executable, "-m", "ssl_vit"]), *words]), end="")


def command(words: list[str] | None = None) -> None:
    """What a person types, with its mistakes told in one line.

    Args:
        words: Behind the name of the command; default: ``sys.argv[1:]``.
    """
    usual = Batch()
    parser = WordsParser(__doc__)
    parser.add_argument("--nodes", type=int, default=usual.nodes, help="machines (default: %(default)s)")
    parser.add_argument("--gpus", type=int, default=usual.gpus, help="per node, 0 for the CPU (default: %(default)s)")
    parser.add_argument("--cpus", type=int, default=usual.cpus, help="cores per task (default: %(default)s)")
    parser.add_argument("--time", default=usual.time, metavar="HH:MM:SS", help="the job's limit (default: %(default)s)")
    parser.add_argument("--grace", type=int, default=usual.grace, help="seconds for saving (default: %(default)s)")
    parser.add_argument("--name", default=usual.name, help="of the job and its log (default: %(default)s)")
    parser.add_argument("--partition", help="where to wait; default: SLURM's own")
    parser.add_argument("--account", help="who pays; default: SLURM's own")
    parser.add_argument("--no-requeue", dest="requeue", action="store_false", help="end when the time is over")
    parser.add_argument("command", nargs=REMAINDER, metavar="COMMAND ...", help="such as mae, with its options")
    given = parser.parse_args(words)
    if not given.command:
        parser.error("a command is missing: ssl-vit slurm [OPTIONS OF THE JOB] mae [OPTIONS OF THE COMMAND]")
    with mistakes_told():
        main(Batch(**{field.name: getattr(given, field.name) for field in fields(Batch)}), given.command)


if __name__ == "__main__":
    command()
