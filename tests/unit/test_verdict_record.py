"""What verdict.json says of test images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from ssl_vit.evaluation.answers import answers_of, save_answers
from ssl_vit.verdict.record import judged_positions


def test_numbers_stand_on_the_images_that_could_be_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "earlier.npz", units=np.zeros(2))
    assert judged_positions(tmp_path, 3).tolist() == [0, 1, 2]
    found = answers_of("class", "top1", np.eye(2), np.array([0, 1]), ("a", "b"), positions=np.array([0, 2]))
    save_answers(tmp_path / "mae-knn-10-labels-draw-0.json", found)
    assert judged_positions(tmp_path, 3).tolist() == [0, 2]
