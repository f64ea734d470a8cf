"""The embedded stack: started twice, killed, started side by side, taken down with nothing left."""

import os
import tempfile
import time

import pytest
from stack_help import ANSWERS, marked, scratch
from workbench import stack
from workbench.base import paths
from workbench.base.errors import StackError
from workbench.stack import artifacts, process, services

GIB = 2**30


def test_up_again_reuses_and_is_quick(world):
    before, lines, began = (
        {n: process.running_process(n).pid for n in ANSWERS},
        [],
        time.monotonic(),
    )
    found = stack.up(world, progress=lines.append)
    assert time.monotonic() - began < 10
    assert [s.state for s in found] == ["up"] * 4 and all(" reused " in line for line in lines), (
        lines
    )
    assert {n: process.running_process(n).pid for n in ANSWERS} == before


def test_the_status_table_and_the_memory_of_everything(world):
    found = {s.name: s for s in stack.status(world)}
    assert set(found) == {*ANSWERS, *services.ON_DEMAND_SERVICES}
    for name in ANSWERS:
        s = found[name]
        assert (
            (s.state, s.pid) == ("up", process.running_process(name).pid)
            and s.seconds > 0
            and s.memory_mb > 10
        )
        assert os.path.exists(s.log) and 0 < s.port - world.stack.port_base + 1 < 40
    total = sum(p.memory_info().rss for p in marked())
    assert total < 6 * GIB, f"{total / GIB:.1f} GiB"
    assert sum(s.memory_mb or 0 for s in found.values()) << 20 > total / 2, (
        "the table misses most of it"
    )


def test_temporary_files_lie_in_the_folder_of_their_service(world):
    """Not in the system's, where what a killed one leaves would stay: native libraries, and what
    Spark works in."""
    assert ANSWERS["spark"](world)
    used = {f.path for p in marked() for f in (*p.memory_maps(), *p.open_files())}
    assert any(path.startswith(os.path.realpath(paths.state_dir())) for path in used)
    elsewhere = [
        path
        for path in used
        if path.startswith(f"{tempfile.gettempdir()}/") and not path.startswith(f"{paths.ROOT}/")
    ]
    assert elsewhere == [], "of the system's folder"
    assert {"blockmgr", "spark"} <= {p.name.partition("-")[0] for p in scratch("spark")}


def test_a_name_that_is_no_service(world):
    with pytest.raises(StackError, match="(?s)there is no service 'kafak'.*did you mean 'kafka'"):
        stack.ensure_running(world, "kafak")


def test_every_jar_is_as_pinned(world):
    assert artifacts.invalid() == []
