"""Checks every file of a run against its hash, or against what it must hold; writes nothing, needs no torch.

python eval/verify.py RUN: what is damaged or missing, and how many files are well; status 1 where anything is not
python eval/verify.py RUN --json
"""

from ssl_vit.script import WordsParser, mistakes_told


def main(run: str, as_json: bool = False) -> bool:
    """A run in, what became of its files on the screen.

    Args:
        run: Its directory, or a folder that was exported.
        as_json: Whether to print JSON for other programs.

    Returns:
        Whether all is well.
    """
    from pathlib import Path

    from ssl_vit.runs import verify

    place = Path(run).expanduser()
    found = verify.verify(place)
    print(verify.as_json(place, found) if as_json else verify.table(place, found), flush=True)
    return not any(one.state in verify.BAD for one in found)


def command(words: list[str] | None = None) -> None:
    """What a person types, with its mistakes told in one line.

    Args:
        words: Behind the name of the command; default: ``sys.argv[1:]``.
    """
    import sys

    parser = WordsParser(__doc__)
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    options = parser.parse_args(words)
    with mistakes_told(2):
        sound = main(options.run, options.json)
    if not sound:
        sys.exit(1)


if __name__ == "__main__":
    command()
