"""``python -m ssl_vit``: the command ``ssl-vit`` where nothing but Python is on the path."""

import sys
from pathlib import Path

# Python puts the working directory first: files of the person's own must not stand in the place of libraries.
if sys.path and Path(sys.path[0]).resolve() == Path.cwd() != Path(__file__).resolve().parents[1]:
    del sys.path[0]

from ssl_vit.console import main

if __name__ == "__main__":
    main()
