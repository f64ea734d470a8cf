"""The track of operations, whose notebooks break and repair a running pipeline."""

import pytest
from notebook_help import OPERATIONS, check_track


@pytest.mark.usefixtures("removed_afterwards")
@pytest.mark.timeout(1800)
def test_the_track_passes(world):
    check_track(OPERATIONS)
