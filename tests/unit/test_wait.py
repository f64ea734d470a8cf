"""Waiting ends by success, by timeout or by a failure, and reports which."""

import fcntl
import os
import threading
import time

import pytest
from workbench.base import wait
from workbench.base.errors import ServiceLost, StackError, WorkbenchError
from workbench.base.wait import file_lock, wait_until


def test_returns_what_the_condition_returned():
    answers = iter([None, 0, "here"])
    assert wait_until(lambda: next(answers), "x", interval=0.001) == "here"


def test_an_exception_is_not_yet():
    calls = []

    def condition():
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError("refused")
        return True

    assert wait_until(condition, "x", interval=0.001) is True


def test_timeout_says_what_how_long_and_the_last_answer():
    def condition():
        raise ConnectionError("port closed")

    with pytest.raises(StackError) as error:
        wait_until(
            condition,
            "kafka to answer",
            timeout=0.05,
            interval=0.01,
            error=StackError,
            hint="read the log",
        )
    assert error.value.message == "waited 0.05 s for kafka to answer"
    assert error.value.location == "last result: ConnectionError: port closed"
    assert error.value.hint == "read the log"


def test_a_service_that_stays_lost_ends_the_wait(monkeypatch):
    monkeypatch.setattr(wait, "RESTART_GRACE_SECONDS", 0.1)

    def condition():
        raise ServiceLost("the service kafka died")

    begun = time.monotonic()
    with pytest.raises(ServiceLost, match="the service kafka died"):
        wait_until(condition, "x", timeout=20, interval=0.01)
    assert 0.1 <= time.monotonic() - begun < 5


def lost_twice_of_three_times(calls, service):
    """A function that counts its calls, and finds the service lost in two of three."""

    def look():
        calls.append(1)
        if len(calls) % 3:
            raise ServiceLost(f"the service {service} died")

    return look


def test_a_service_that_failed_finds_lost_may_be_restarted_too(monkeypatch):
    monkeypatch.setattr(wait, "RESTART_GRACE_SECONDS", 0.2)
    calls = []
    failed = lost_twice_of_three_times(calls, "kafka")
    assert wait_until(
        lambda: len(calls) > 20, "x", timeout=20, interval=0.03, failure_reason=failed
    )
    calls[:] = [1] * 3
    with pytest.raises(ServiceLost, match="the service kafka died"):
        wait_until(
            lambda: False,
            "x",
            timeout=20,
            interval=0.03,
            failure_reason=lambda: calls.clear() or failed(),
        )


def test_failed_ends_the_wait_at_once():
    began = time.monotonic()
    with pytest.raises(WorkbenchError, match="gave up waiting for the task: it is FAILED"):
        wait_until(lambda: False, "the task", timeout=30, failure_reason=lambda: "it is FAILED")
    assert time.monotonic() - began < 5


def test_a_moment_of_somebody_who_looks_at_a_lock_does_not_refuse_it(tmp_path):
    """Such as `watch`, which looks whether a command runs."""
    path = tmp_path / "lock"
    path.write_text("1234")
    with path.open(encoding="utf-8") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        end = threading.Timer(0.1, fcntl.flock, (looking, fcntl.LOCK_UN))
        end.start()
        with file_lock(path, StackError):
            assert wait.lock_owner_pid(path) == str(os.getpid())
        end.join()


def test_a_lock_that_stays_is_refused_with_its_owner(tmp_path, monkeypatch):
    monkeypatch.setattr(wait, "LOCK_SECONDS", 0.1)
    with file_lock(tmp_path / "lock"):
        with pytest.raises(StackError, match=str(os.getpid())):
            with file_lock(tmp_path / "lock", StackError):
                pytest.fail("two hold it")


def test_paced_items_come_evenly_and_the_time_is_over_at_the_end():
    begin = time.monotonic()
    times = [time.monotonic() - begin for _ in wait.pace("abc", 0.3)]
    assert time.monotonic() - begin >= 0.3
    assert len(times) == 3 and times[1] >= 0.1 and times[2] >= 0.2
    assert list(wait.pace([], 0)) == []
