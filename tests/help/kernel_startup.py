"""Code that each kernel of a tested notebook runs first: it notes faults in the texts of pictures (pictures.py).

IPython runs it from the startup folder of its profile.
"""

import os
import sys
from pathlib import Path

HELP, FAULTS = os.environ["WORKBENCH_TEST_HELP"], os.environ["WORKBENCH_PICTURE_FAULTS"]
sys.path.insert(0, HELP)

import pictures  # noqa: E402
from workbench.display.draw.picture import Picture  # noqa: E402

show = Picture._repr_png_


def show_and_check(picture):
    faults = pictures.text_faults(picture) if picture.axes else []
    with Path(FAULTS).open("a", encoding="utf-8") as f:
        f.writelines(f"{picture!r}: {fault}\n" for fault in faults)
    return show(picture)


Picture._repr_png_ = show_and_check
sys.path.remove(HELP)
