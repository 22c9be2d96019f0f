"""Lists run directories as a table, shows one, or says what differs between two; needs no torch.

python eval/runs.py: those in runs/, the newest first; python eval/runs.py FOLDER FOLDER
python eval/runs.py RUN: its facts, products, numbers with their protocol, and what to type next
python eval/runs.py RUN OTHER_RUN --compare: options, facts, versions and numbers that differ
"""

from ssl_vit.script import WordsParser, mistakes_told


def main(given: list[str], compared: bool = False, as_json: bool = False) -> None:
    """Folders in, what lies in them on the screen.

    Args:
        given: Runs, and folders of runs.
        compared: Whether to say what differs between two runs.
        as_json: Whether to print JSON for other programs.
    """
    import json
    from pathlib import Path

    from ssl_vit.core.errors import UserError
    from ssl_vit.runs import telling
    from ssl_vit.runs.listing import Run, find, read
    from ssl_vit.runs.networks import runs_near

    places = [Path(name).expanduser() for name in given]
    for place in places:
        if not place.is_dir():
            raise UserError(
                f"there is no folder {place}; give run directories, or folders that hold them{runs_near(place)}"
            )
    if compared or (len(places) == 1 and isinstance(read(places[0]), Run)):
        wanted = 2 if compared else 1
        if len(places) != wanted:
            raise UserError(f"--compare is between two runs, and {len(places)} folders are given; name two")
        runs = [read(place) for place in places]
        for run in runs:
            if not isinstance(run, Run):
                raise UserError(f"{run.path} {run.why}")
        shown = [run for run in runs if isinstance(run, Run)]
        text = telling.two(*shown) if compared else telling.one(shown[0])
        data = telling.two_as_data(*shown) if compared else telling.one_as_data(shown[0])
    else:
        found = [one for place in places for one in find(place)]
        text = telling.table(found) or f"no runs in {', '.join(map(str, places))}; ssl-vit mae makes one"
        data = telling.listed(found)
    print(json.dumps(data, indent=1) if as_json else text)


def command(words: list[str] | None = None) -> None:
    """What a person types, with its mistakes told in one line.

    Args:
        words: Behind the name of the command; default: ``sys.argv[1:]``.
    """
    parser = WordsParser(__doc__)
    parser.add_argument("runs", nargs="*", default=["runs"], metavar="RUN_OR_FOLDER", help="default: runs")
    parser.add_argument("--compare", action="store_true", help="what differs between two runs")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    options = parser.parse_args(words)
    with mistakes_told():
        main(options.runs, options.compare, options.json)


if __name__ == "__main__":
    command()
