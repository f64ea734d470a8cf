"""The tracks of notebooks that no other file of this folder runs, executed in order."""

import pytest
from notebook_help import FIRST_TRACKS, MUSEUM_TRACKS, NOTEBOOKS, OPERATIONS, TEARDOWN, check_track

ALL = {path.relative_to(NOTEBOOKS).parts[0] for path in NOTEBOOKS.rglob("[0-9]*.ipynb")}
TRACKS = {name.removesuffix(".ipynb") for name in ALL}
TRACKS -= {*FIRST_TRACKS, *MUSEUM_TRACKS, OPERATIONS, TEARDOWN}


@pytest.mark.usefixtures("removed_afterwards")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", sorted(TRACKS))
def test_a_track_passes(world, name):
    check_track(name)
