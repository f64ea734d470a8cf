"""Code that each kernel of a tested notebook runs first: it notes faults in the texts of pictures (pictures.py).

IPython runs it from the startup folder of its profile, in the namespace of the notebook.
"""


def note_picture_faults():
    import os
    import sys
    from pathlib import Path

    help_folder = os.environ["WORKBENCH_TEST_HELP"]
    sys.path.insert(0, help_folder)
    import pictures

    sys.path.remove(help_folder)
    from workbench.display.draw.picture import Picture

    faults, show = Path(os.environ["WORKBENCH_PICTURE_FAULTS"]), Picture._repr_png_

    def show_and_check(picture):
        found = pictures.text_faults(picture) if picture.axes else []
        with faults.open("a", encoding="utf-8") as f:
            f.writelines(f"{picture!r}: {fault}\n" for fault in found)
        return show(picture)

    Picture._repr_png_ = show_and_check


note_picture_faults()
del note_picture_faults
