"""Which folders are packages; everything else about the project is in pyproject.toml.

A clone holds the scripts beside the package, to be read and launched; what is installed holds them inside it.
"""

from setuptools import find_namespace_packages, setup

SCRIPTS = {"ssl_vit.recipes": "recipes", "ssl_vit.eval": "eval"}

setup(packages=[*find_namespace_packages(include=["ssl_vit*"]), *SCRIPTS], package_dir=SCRIPTS)
