"""What all tests of notebooks share."""

import shutil
from pathlib import Path

import pytest
from storefront import setup
from workbench import stack, tracks

pytest.register_assert_rewrite("notebook_help")
HELP = Path(__file__).parents[1] / "help"


@pytest.fixture(scope="module")
def removed_afterwards(world):
    """What tracks leave is removed at the end of their file, as by notebook 99: other files expect none of it."""
    yield
    setup.reset(world)
    for track in tracks.for_world(world):
        stack.ensure_running(world, *track.services)
        tracks.reset(world, track)


@pytest.fixture(autouse=True)
def runs_elsewhere(tmp_path, monkeypatch):
    """Executed notebooks and reports of tests do not land among a person's own; kernels note faults of pictures."""
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path / "runs"))
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    shutil.copy(HELP / "kernel_startup.py", startup)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("WORKBENCH_TEST_HELP", str(HELP))
    monkeypatch.setenv("WORKBENCH_PICTURE_FAULTS", str(tmp_path / "picture_faults.txt"))
