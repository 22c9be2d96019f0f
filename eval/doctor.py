"""Looks at images before anything is trained on them: what they are, what may go wrong, how long it takes.

python eval/doctor.py DATA --out doctor.html
DATA is whatever --data.path of the recipes accepts. Without --out: a table on the screen.
"""

from __future__ import annotations

from ssl_vit.configs.doctor import DoctorRecipe, check_doctor
from ssl_vit.script import run_script

check = check_doctor


def main(cfg: DoctorRecipe) -> None:
    """Images in, a table and DOCTOR.html out.

    Args:
        cfg: What ``--help`` lists.
    """
    check_doctor(cfg)
    from ssl_vit.doctor.examining import examine

    examine(cfg)


if __name__ == "__main__":
    run_script(main, DoctorRecipe, __doc__ or "")
