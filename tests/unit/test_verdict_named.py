"""Runs that ``--verdict.backbones`` names: what is told of a folder that is none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from ssl_vit.core.errors import UserError, reason
from ssl_vit.data.decoding.formats import Format
from ssl_vit.data.images import ArrayRows, ImageSet, Sizes
from ssl_vit.verdict.named import named_runs
from ssl_vit.verdict.options import VerdictConfig, verdict_recipe

POOL = ImageSet(
    "made", ArrayRows(np.zeros((1, 1, 2, 2), dtype=np.uint8), "made"), np.arange(1), Format(1, 8), Sizes((2, 2), 2), "x"
)


def told(place: Path) -> str:
    with pytest.raises(UserError) as error:
        named_runs(verdict_recipe()(verdict=VerdictConfig(backbones=str(place))), POOL)
    assert "Errno" not in str(error.value) and "\n" not in str(error.value)
    return str(error.value).removeprefix(f"--verdict.backbones {place} is no finished run of a method ")


def test_a_folder_that_is_no_run_says_what_it_lacks(tmp_path: Path) -> None:
    assert told(tmp_path / "nowhere") == "(there is no such folder)"
    assert told(tmp_path) == "(it holds no backbone/config.json)"
    (tmp_path / "backbone").mkdir()
    config = tmp_path / "backbone" / "config.json"
    config.write_text("{}")
    assert told(tmp_path) == "(its files record no ssl_vit)"
    config.write_text("{")
    assert "Expecting property name" in told(tmp_path)
    config.write_text(json.dumps({"ssl_vit": {"objective": "magic"}}))
    assert told(tmp_path) == "(it holds no environment.json)"
    (tmp_path / "environment.json").write_text(json.dumps({"data_fingerprint": "f"}))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(None))
    assert told(tmp_path).startswith("(it was made by magic, not by one of mae, dino")
    config.write_text(json.dumps({"ssl_vit": {"method": "mae"}}))
    assert told(tmp_path) == "(its files are damaged)"


def test_an_error_of_the_system_has_no_number(tmp_path: Path) -> None:
    with pytest.raises(OSError) as missing:
        (tmp_path / "nothing").read_text()
    assert "Errno" in str(missing.value) and reason(missing.value) == "No such file or directory"
    assert reason(ValueError("as it is")) == "as it is"
