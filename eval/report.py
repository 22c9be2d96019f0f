"""Makes the report of a verdict again, or one of ordinary runs; needs no torch.

python eval/report.py VERDICT
python eval/report.py runs/mae-digits-* runs/supervised-* --out report
"""

from ssl_vit.core.errors import UserError
from ssl_vit.runs.networks import runs_near
from ssl_vit.script import WordsParser, mistakes_told


def main(given: list[str], out: str | None) -> None:
    """Raw results in, report.html, report.md and figures out.

    Args:
        given: One verdict's folder, or run directories.
        out: Where the report goes; None for the verdict's folder.
    """
    from pathlib import Path

    for place in given:
        if not Path(place).expanduser().exists():
            raise UserError(
                f"there is no file or folder {place}; give one verdict's folder, or run directories"
                f"{runs_near(Path(place).expanduser())}"
            )
    from ssl_vit.report.page.render import terminal
    from ssl_vit.report.page.write import open_numbers, write_report

    verdict = open_numbers(given)
    report = write_report(verdict, out)
    folder = Path(out).expanduser() if out else verdict.folder
    print(terminal(report))
    print(f"Report: {folder / 'report.html'}   {folder / 'report.md'}")


def command(words: list[str] | None = None) -> None:
    """What a person types, with its mistakes told in one line.

    Args:
        words: Behind the name of the command; default: ``sys.argv[1:]``.
    """
    parser = WordsParser(__doc__)
    parser.add_argument("runs", nargs="+", metavar="VERDICT_OR_RUN", help="one verdict's folder, or run directories")
    parser.add_argument("--out", metavar="FOLDER", help="where the report goes (default: the verdict's folder)")
    options = parser.parse_args(words)
    with mistakes_told():
        main(options.runs, options.out)


if __name__ == "__main__":
    command()
