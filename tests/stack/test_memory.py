"""A machine with 8 GiB of memory, the README's minimum: the demo under a limit of the kernel."""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from workbench.base.paths import ROOT, VAR_DIR
from workbench.base.wait import wait_until

INSTANCE = "test-memory"
CGROUPS = Path("/sys/fs/cgroup")
GIB = 1 << 30
SERVICES_GIB = 4.5


class MemoryGroup:
    """A control group with a limit of memory. The processes of its children are in it, too.

    The kernel's files: cgroup-v1/memory and cgroup-v2 of the kernel's documentation.
    """

    def __init__(self, limit: int):
        """Make the group. Raises OSError where that is not allowed."""
        parent = CGROUPS / "memory"
        self.is_v1 = parent.is_dir()
        self.folder = (parent if self.is_v1 else CGROUPS) / f"workbench-{os.getpid()}"
        self.folder.mkdir()
        try:
            name = "memory.limit_in_bytes" if self.is_v1 else "memory.max"
            (self.folder / name).write_text(str(limit))
            self._forbid_swap(limit)
        except OSError:
            self.folder.rmdir()
            raise

    def _forbid_swap(self, limit: int) -> None:
        name, value = (
            ("memory.memsw.limit_in_bytes", limit) if self.is_v1 else ("memory.swap.max", 0)
        )
        if (self.folder / name).exists():  # the kernel may count no swap
            (self.folder / name).write_text(str(value))

    def killed(self) -> int:
        """Return how many processes the kernel has killed because the group was full."""
        return self._numbers("memory.oom_control" if self.is_v1 else "memory.events")["oom_kill"]

    def used(self) -> int:
        """Return the bytes that processes hold; the cache of files is left out."""
        return self._numbers("memory.stat")["total_rss" if self.is_v1 else "anon"]

    def _numbers(self, name: str) -> dict[str, int]:
        pairs = (line.split() for line in (self.folder / name).read_text().splitlines())
        return {key: int(value) for key, value in pairs}

    def _is_gone(self) -> bool:
        with suppress(OSError):
            self.folder.rmdir()
        return not self.folder.exists()

    def remove(self) -> None:
        """Remove the group; its processes have been stopped."""
        wait_until(self._is_gone, f"the end of the processes in {self.folder}", timeout=60)


@pytest.fixture
def group():
    try:
        made = MemoryGroup(8 * GIB)
    except OSError as e:
        pytest.skip(f"a limit of memory is not allowed here: {e}")
    yield made
    made.remove()


@pytest.mark.drill
def test_the_demo_fits_into_eight_gib(group, tmp_path):
    given = {
        **os.environ,
        "WORKBENCH_INSTANCE": INSTANCE,
        "WORKBENCH_PORT_BASE": str(int(os.environ["WORKBENCH_PORT_BASE"]) + 160),
        "WORKBENCH_RUNS": str(tmp_path),
    }
    command = [sys.executable, "-m", "workbench.cli"]
    join = f'echo $$ > {group.folder}/cgroup.procs && exec "$@"'
    try:
        demo = subprocess.run(
            ["sh", "-c", join, "sh", *command, "demo"],
            env=given,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1_800,
        )
        used, killed = group.used() / GIB, group.killed()
    finally:
        subprocess.run([*command, "down"], env=given, cwd=ROOT, capture_output=True)
        shutil.rmtree(VAR_DIR / "instances" / INSTANCE, ignore_errors=True)
    assert demo.returncode == 0, demo.stdout[-3000:]
    assert killed == 0, "the kernel has killed processes"
    print(f"the services hold {used:.2f} GiB after the demo")
    assert 1 < used <= SERVICES_GIB
