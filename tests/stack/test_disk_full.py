"""A disk that fills up under a run, and room again: said by name, and nothing is lost."""

import os
import shutil
import subprocess
import sys
import threading

import pytest
from workbench.base.paths import ROOT, VAR_DIR
from workbench.base.wait import wait_until

INSTANCE = "test-disk"


@pytest.fixture
def small(tmp_path):
    """A function that runs a command where an instance's folder is a disk of 900 MB of its own: in
    a mount namespace, which is gone with its last process. With it, the disk as this process sees
    it."""
    state = VAR_DIR / "instances" / INSTANCE
    state.mkdir(parents=True, exist_ok=True)
    mount = f"mount -t tmpfs -o size=900m none {state} && echo mounted && exec sleep 7200"
    holder = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", mount], stdout=subprocess.PIPE, text=True
    )
    try:
        if os.geteuid() or holder.stdout.readline() != "mounted\n":
            pytest.skip("mounting is not allowed here")
        port = str(int(os.environ["WORKBENCH_PORT_BASE"]) + 160)
        given = {
            **os.environ,
            "WORKBENCH_INSTANCE": INSTANCE,
            "WORKBENCH_PORT_BASE": port,
            "WORKBENCH_RUNS": str(tmp_path),
        }

        def do(verb, *words):
            command = [
                "nsenter",
                "--mount",
                f"--target={holder.pid}",
                f"--wd={ROOT}",
                sys.executable,
                "-m",
                *(["storefront"] if verb == "storefront" else ["workbench.cli", verb]),
                *words,
            ]
            return subprocess.Popen(
                command, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )

        yield do, f"/proc/{holder.pid}/root{state}"
        do("down").communicate()
    finally:
        holder.kill()
        holder.wait()
        shutil.rmtree(state, ignore_errors=True)


def said(process, code):
    text = process.communicate()[0]
    assert process.returncode == code, text[-3000:]
    return text


@pytest.mark.drill
def test_a_disk_that_fills_up_under_a_run_and_room_again(small):
    do, disk = small
    said(do("run", "12_connectors"), 0)
    run = do("run", "13_hudi_ingest", "14_changes")
    wait_until(
        lambda: "14_changes" in run.stdout.readline(),
        "the run to be at 14_changes",
        timeout=600,
        interval=0,
    )
    with open(f"{disk}/filler", "wb") as filler, pytest.raises(OSError, match="No space left"):
        while True:
            os.write(filler.fileno(), bytes(1 << 20))
    assert "the disk is full: 0 MB are free" in said(run, 1)
    assert "the disk is full: 0 MB are free" in said(do("status"), 0)
    assert "nothing is run: the disk is full" in said(do("run", "14_changes"), 1)
    os.unlink(f"{disk}/filler")
    said(do("up"), 0)
    assert "passed: 2 of 2 notebooks" in said(do("run", "13_hudi_ingest", "14_changes"), 0)


@pytest.mark.drill
def test_the_storefront_agrees_after_its_disk_was_full(small):
    """Its stores, Kafka and Connect are on it; what was asked meanwhile was refused, or is in every
    store."""
    do, disk = small
    said(do("up", "postgres", "kafka", "connect"), 0)
    assert said(do("storefront", "up", "--outbox"), 0).count("published by the connector") == 3
    load = do("storefront", "load", "--changes", "2000", "--rate", "100")
    threading.Event().wait(8)  # it is under way then
    with open(f"{disk}/filler", "wb") as filler, pytest.raises(OSError, match="No space left"):
        while True:
            os.write(filler.fileno(), bytes(1 << 20))
    wait_until(
        lambda: "the disk is full" in do("status").communicate()[0],
        "the status to say it",
        timeout=60,
    )
    os.unlink(f"{disk}/filler")
    said(do("up", "postgres", "kafka", "connect"), 0)
    said(do("storefront", "up", "--outbox"), 0)
    load.communicate()  # it may have given up
    assert "documents that differ now: 0" in said(do("storefront", "load", "--changes", "10"), 0)
