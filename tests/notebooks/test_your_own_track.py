"""The track of tables of one's own."""

import pytest
from executing import YOUR_OWN, check_track


@pytest.mark.timeout(1800)
def test_the_track_passes(world):
    check_track(YOUR_OWN)
