"""Pictures: curves of runs, and what a trained backbone does (positions, attention, features as colours).

python eval/figures.py RUN [IMAGES]
python eval/figures.py RUN RUN [RUN ...] --out FOLDER
The first draws the network that a run has left, on IMAGES without labels (default: those of the run), and the run's
loss, learning rate and what was watched. The second draws these curves of several runs in one picture, also while they
train.
"""

import itertools
import sys
from pathlib import Path

from ssl_vit.configs import FiguresRecipe
from ssl_vit.script import WordsParser, mistakes_told, run_script


def main(cfg: FiguresRecipe) -> None:
    """Backbone and images in, RUN/figures/positions.png, attention.png, pca.png and training.png out.

    Args:
        cfg: What ``--help`` lists.
    """
    from ssl_vit.figures.attention import save_attention
    from ssl_vit.figures.pca import save_components
    from ssl_vit.figures.positions import save_position_similarities
    from ssl_vit.figures.shown import open_shown
    from ssl_vit.models.backbone import TokenBackbone
    from ssl_vit.released.starts import load_start

    exported = load_start(cfg.backbone)
    about, run = exported.about, exported.folder.parent
    folder = Path(cfg.out).expanduser() if cfg.out else run / "figures"
    shown = open_shown(exported, cfg.images, cfg.figures)
    backbone = shown.backbone
    made = [folder / "pca.png"]
    save_components(backbone, shown, made[0])
    if isinstance(backbone, TokenBackbone) and backbone.reads_class_token:
        made.insert(0, folder / "attention.png")
        save_attention(backbone, shown, made[0])
    else:
        print("No attention.png: the backbone has no class token whose attention could be drawn.")
    if isinstance(backbone, TokenBackbone) and backbone.patch_positions() is not None:
        made.insert(0, folder / "positions.png")
        save_position_similarities(backbone, made[0], kind=about.get("positions", "learnable"))
    else:
        print("No positions.png: the backbone has no position embedding that could be drawn.")
    if (run / "metrics.jsonl").exists():
        made.append(draw_training([str(run)], str(folder)))
    print("\n".join(f"Picture: {path}" for path in made))


def draw_training(runs: list[str], out: str | None) -> Path:
    """Curves of one run or several; needs no torch.

    Args:
        runs: Run directories.
        out: The folder to draw into; None for that of the only run.

    Returns:
        The picture.
    """
    from ssl_vit.core.errors import UserError
    from ssl_vit.core.files import refuse_address, write_bytes_atomically
    from ssl_vit.report.charts.training import training_chart

    if out is None and len(runs) > 1:
        raise UserError("a picture of several runs needs a folder of its own: name one with --out FOLDER")
    refuse_address("--out", out or "")
    chart = training_chart(runs)
    path = (Path(runs[0]).expanduser() / "figures" if out is None else Path(out).expanduser()) / f"{chart.name}.png"
    try:
        write_bytes_atomically(path, chart.png)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}; name another folder with --out") from error
    return path


def command(words: list[str] | None = None) -> None:
    """What a person types, with its mistakes told in one line.

    Args:
        words: Behind the name of the command; default: ``sys.argv[1:]``.
    """
    words = sys.argv[1:] if words is None else words
    bare = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    logged = [(Path(word).expanduser() / "metrics.jsonl").is_file() for word in bare]
    trains = logged == [True] and not (Path(bare[0]).expanduser() / "backbone").is_dir()
    if not (len(bare) > 1 and logged[1]) and not trains:
        run_script(main, FiguresRecipe, __doc__ or "", words)
        return
    parser = WordsParser(__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories")
    parser.add_argument("--out", metavar="FOLDER", help="where the picture goes (default, of one run: RUN/figures)")
    options = parser.parse_args(words)
    with mistakes_told():
        print(f"Picture: {draw_training(options.runs, options.out)}")


if __name__ == "__main__":
    command()
