"""Applies a trained classifier to images and writes a table: one row per image, with the probability of every class.

accelerate launch eval/predict.py --classifier RUN --data.path IMAGES --out predictions.csv
RUN is a run of eval/finetune.py or recipes/supervised.py; IMAGES need no labels, and all splits are read.
"""

from ssl_vit.configs import PredictRecipe
from ssl_vit.script import run_script


def main(cfg: PredictRecipe) -> None:
    """Classifier and images in, table out.

    Args:
        cfg: What ``--help`` lists.
    """
    from ssl_vit.core.files import check_out
    from ssl_vit.data.sources.opening import open_images
    from ssl_vit.evaluation.predict import SUFFIXES, answer, prediction_table, write_table
    from ssl_vit.evaluation.session import check_format
    from ssl_vit.exports.classifier import load_classifier
    from ssl_vit.training import launch

    path = check_out(cfg.out, SUFFIXES)
    accelerator = launch.join("fp32")
    classifier = load_classifier(cfg.classifier)
    labelling, size = classifier.labelling, classifier.exported.size
    own = classifier.exported.about.get("data", {})  # decoded as the training images were, unless asked otherwise
    canvas, window = cfg.data.canvas or own.get("canvas"), cfg.data.window or own.get("window")
    images = open_images(cfg.data).on_canvas(canvas, size, window)
    check_format(images, classifier.exported)
    launch.use_cores(accelerator, size)
    answers, reasons = answer(
        classifier, images, batch_size=cfg.predict.batch_size, workers=cfg.data.workers, device=accelerator.device
    )
    if not accelerator.is_main_process:
        return
    write_table(prediction_table(images, labelling, answers, reasons), path)
    missed = f", {len(reasons):,} of them could not be read (column unreadable)" if reasons else ""
    each = {"class": "probabilities of {} classes", "multilabel": "probabilities of {} labels",
               "regression": "{} predicted number(s)"}[labelling.kind].format(len(labelling.names))  # fmt: skip
    print(f"{path}: {len(images):,} images from {images.name}{missed}; {each} each")


if __name__ == "__main__":
    run_script(main, PredictRecipe, __doc__ or "")
