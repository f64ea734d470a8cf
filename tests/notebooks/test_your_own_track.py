"""The track of tables of one's own, and what removes it."""

import pytest
from executing import YOUR_OWN, check_track
from workbench.walkthroughs import bikeshare


@pytest.fixture
def _nothing_left(world):
    yield
    bikeshare.walkthrough.reset(world)
    left = bikeshare.walkthrough.resources.remaining(world)
    assert not any(left.values()), left


@pytest.mark.timeout(1800)
def test_the_track_passes(world, _nothing_left):
    check_track(YOUR_OWN)
