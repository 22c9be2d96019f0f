"""One table over the number of labels from result files of any number of runs; refuses to mix protocols.

python eval/compare.py runs/mae-digits-* runs/supervised-*/results/*.json --out table.md (or .tex, .csv)
python eval/compare.py RUN/results/knn.json OTHER/results/knn.json --mcnemar: two checkpoints, answer by answer
"""

from pathlib import Path

from ssl_vit.core.files import check_out
from ssl_vit.runs.results import ENDINGS, compare, read_results
from ssl_vit.script import WordsParser, mistakes_told


def main(results: list[str], out: str | Path | None, two: bool = False) -> None:
    """Result files in, table on screen and as a file out.

    Args:
        results: Result files or run directories.
        out: Where the table goes, as Markdown, LaTeX or CSV by its ending; None for the screen alone.
        two: Whether to test two checkpoints against each other instead.
    """
    path = None if out is None else check_out(str(out), ENDINGS)
    read = read_results(results)  # a wrong path is told before anything heavy is imported
    if two:
        from ssl_vit.report.findings.checkpoints import between_two

        print(between_two(read))
        return
    from rich.console import Console
    from rich.table import Table

    from ssl_vit.report.written import of_comparison

    found = compare(read)
    table = Table(title=found.title, title_justify="left")
    for i, heading in enumerate(found.headings):
        table.add_column(heading, justify="left" if i < 2 else "right")
    for row in found.rows:
        table.add_row(*row)
    Console(soft_wrap=True).print(table)
    for note in found.notes:
        print(note)
    if path is not None:
        of_comparison(found).write(path)
        print(f"Table: {path}")


def command(words: list[str] | None = None) -> None:
    """What a person types, with its mistakes told in one line.

    Args:
        words: Behind the name of the command; default: ``sys.argv[1:]``.
    """
    parser = WordsParser(__doc__)
    parser.add_argument("results", nargs="+", metavar="RUN_OR_FILE", help="run directories and result files")
    parser.add_argument("--out", metavar="FILE", help="also write the table: .md, .tex (booktabs) or .csv")
    parser.add_argument("--mcnemar", action="store_true", help="McNemar's exact test between two result files instead")
    options = parser.parse_args(words)
    if options.mcnemar and options.out:
        parser.error("--mcnemar prints a sentence and writes no table; leave out --out")
    with mistakes_told(2):
        out = None if options.out is None else check_out(options.out, ENDINGS)
    with mistakes_told():
        main(options.results, out, options.mcnemar)


if __name__ == "__main__":
    command()
