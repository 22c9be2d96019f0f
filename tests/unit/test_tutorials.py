"""docs/tutorials: what their maker writes behind a command, and that every command of theirs can be typed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from ssl_vit.core.started import scripts

from made_pages import script_of

make_tutorials = script_of("make_tutorials")
PAGES = sorted(make_tutorials.FOLDER.glob("*.md"))


def test_what_was_printed_is_told_shortly(tmp_path: Path) -> None:
    steps = "".join(f"step {i}/9  loss 1\n" for i in range(1, 10))
    text = f"\x1b[1mhead\x1b[0m {tmp_path}/runs  \nbar 1\rbar 2\n{steps}tail {tmp_path}\n"
    assert make_tutorials.told(text, tmp_path) == (
        "head runs\nbar 2\nstep 1/9  loss 1\n[7 more lines of steps]\nstep 9/9  loss 1\ntail ."
    )
    many = make_tutorials.told("\n".join(map(str, range(100))), tmp_path, 10)
    assert many.splitlines() == ["0", "1", "2", "3", "4", "[90 more lines]", "95", "96", "97", "98", "99"]
    (long,) = make_tutorials.told("x" * 500, tmp_path).splitlines()
    assert len(long) == make_tutorials.WIDTH + 4 and long.endswith(" ...")
    assert make_tutorials.told(f"{sys.prefix}/bin {Path.home()}/x", tmp_path) == "ENVIRONMENT/bin ~/x"


PAGE = """# A page

<!-- made -->
Not yet run.

```bash
echo one; echo two > made.png
```

Words between.

<!-- ends with 3 -->
```bash
echo wrong; exit 3
```

<!-- picture: made.png as page.png: What was made -->

```bash
true
```
"""


def test_a_page_is_run_and_can_be_run_again(tmp_path: Path) -> None:
    folder, beside = tmp_path / "story", tmp_path / "pages"
    folder.mkdir()
    beside.mkdir()
    once = make_tutorials.run(PAGE, folder, beside)
    told = re.sub(r"Run on .*", "", once)
    assert "echo one; echo two > made.png\n```\n\n```text\none\n```\n\n*less than a second*\n\nWords between." in told
    assert "<!-- ends with 3 -->\n```bash\necho wrong; exit 3\n```\n\n```text\nwrong\n```" in told
    assert told.endswith("```bash\ntrue\n```\n\n*less than a second*\n")
    assert (beside / "page.png").read_text() == "two\n"
    assert told.count("-->\n![What was made](page.png)\n\n```bash") == 1
    assert "Not yet run" not in once and "All of it took" in once
    assert re.sub(r"Run on .*", "", make_tutorials.run(once, folder, beside)) == told


@pytest.mark.parametrize("command", ["exit 1", "false; true"])
def test_a_command_that_fails_leaves_the_page_alone(command: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="ended with 1 instead of 0; the page stays as it was"):
        make_tutorials.run(f"```bash\n{command}\n```\n", tmp_path, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_has_a_date_and_commands_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<!-- made -->\n" in text
    commands = [block["command"] for block in make_tutorials.BLOCK.finditer(text)]
    typed = {word for command in commands for word in re.findall(r"^ssl-vit ([a-z-]+)", command, re.MULTILINE)}
    assert typed and typed <= set(scripts())
