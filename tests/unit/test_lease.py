"""Locks in S3, on a fake S3 that checks conditions like a real one (see tests/stack/test_s3.py)."""

import datetime as dt
import io
import json
import threading
from email.utils import format_datetime
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError
from workbench.base import aws, files, lease, paths
from workbench.base.errors import LakeError, StackError
from workbench.base.wait import wait_until

ADDRESS = "s3a://bucket/checkpoints/table"


@pytest.fixture
def s3(monkeypatch, tmp_path):
    """An S3 of one object: its text and when it was written, S3's clock, what was asked, answers
    that get lost."""
    it = SimpleNamespace(
        text=None,
        version=0,
        at=None,
        now=dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
        asked=[],
        lose=0,
        answer="PreconditionFailed",
        one=threading.Lock(),
    )

    def refuse(name):
        with aws.translate_errors("s3"):
            raise ClientError({"Error": {"Code": name}}, "PutObject")

    def ask(lock, operation, Body=None, IfMatch=None, IfNoneMatch=None):  # noqa: N803 - S3's names
        assert lock is None or (lock.bucket, lock.key) == ("bucket", "checkpoints/table.lock")
        with it.one:
            it.asked.append(operation)
            if operation == "get_object":
                if it.text is None:
                    refuse("NoSuchKey")
                return {
                    "Body": io.BytesIO(it.text),
                    "ETag": str(it.version),
                    "LastModified": it.at,
                    "ResponseMetadata": {
                        "HTTPHeaders": {"date": format_datetime(it.now, usegmt=True)}
                    },
                }
            assert (IfMatch is None) != (IfNoneMatch is None), "no write without a condition"
            if (
                IfNoneMatch
                and it.text is not None
                or IfMatch
                and (it.text is None or IfMatch != str(it.version))
            ):
                refuse("NoSuchKey" if it.text is None else "PreconditionFailed")
            it.text, it.version, it.at = Body, it.version + 1, it.now
            if it.lose:
                it.lose -= 1
                refuse(it.answer)
            return {"ETag": str(it.version)}

    it.put = lambda **body: ask(
        None,
        "put_object",
        json.dumps(body).encode(),
        **({"IfMatch": str(it.version)} if it.text is not None else {"IfNoneMatch": "*"}),
    )
    monkeypatch.setattr(lease._LockObject, "_call", ask)
    monkeypatch.setattr(paths, "USER_RUNTIME_DIR", tmp_path / "own")
    return it


def of_another(**more):
    """What a holder elsewhere has written."""
    return {"by": "another", "host": "elsewhere", "pid": 7, "beat": 0, **more}


def take():
    with files.exclusive_lock(ADDRESS, "ingest into t", "wait"):
        return True


def test_who_comes_second_is_told_and_the_next_one_gets_it(s3):
    with files.exclusive_lock(ADDRESS, "ingest into t"):
        with pytest.raises(LakeError, match="another ingest into t is running") as error:
            take()
        assert (
            str(json.loads(s3.text)["pid"]) in error.value.location
            and f"{ADDRESS}.lock" in error.value.location
        )
    assert "released" in json.loads(s3.text) and take() and take()


def lock_file():
    (file,) = (paths.USER_RUNTIME_DIR / "locks").iterdir()
    return file


@pytest.mark.parametrize("elsewhere", [False, True])
def test_without_a_name_it_waits(s3, elsewhere):
    got = []

    def second():
        with files.exclusive_lock(ADDRESS):
            got.append("second")

    with files.exclusive_lock(ADDRESS):
        waiting = threading.Thread(target=second)
        if elsewhere:
            lock_file().unlink()
        waiting.start()
        if elsewhere:
            wait_until(lambda: s3.asked.count("get_object") > 3, "the second to ask")
        else:
            waiting.join(0.3)
        got.append("first")
    waiting.join(10)
    assert got == ["first", "second"]


def test_the_lock_of_one_that_was_killed_elsewhere_is_taken_over_when_it_has_run_out(s3):
    s3.put(**of_another())
    s3.now += dt.timedelta(seconds=lease.LEASE_SECONDS - 1)
    with pytest.raises(LakeError, match="another") as error:
        take()
    assert "process 7 on elsewhere" in error.value.location
    s3.now += dt.timedelta(seconds=2)
    assert take()


def test_of_two_that_take_over_one_wins(s3, monkeypatch):
    s3.put(**of_another())
    s3.now += dt.timedelta(seconds=lease.LEASE_SECONDS)
    ask = lease._LockObject._call

    def other_is_first(lock, operation, **given):
        monkeypatch.setattr(lease._LockObject, "_call", ask)
        found = ask(lock, operation, **given)
        s3.put(**of_another(by="a third"))
        return found

    monkeypatch.setattr(lease._LockObject, "_call", other_is_first)
    with pytest.raises(LakeError, match="another"):
        take()
    assert json.loads(s3.text)["by"] == "a third"


def unreleased(s3, monkeypatch):
    """A lock as one leaves it that was killed."""
    with monkeypatch.context() as patch, files.exclusive_lock(ADDRESS, "ingest"):
        patch.setattr(
            lease._LockObject,
            "write",
            lambda *a, **k: (_ for _ in ()).throw(StackError("S3 is gone")),
        )
        text = s3.text
    assert s3.text == text and "released" not in json.loads(text)


def test_one_that_is_gone_on_this_machine_holds_nothing(s3, monkeypatch):
    unreleased(s3, monkeypatch)
    assert take()


def test_without_its_lock_file_one_of_this_machine_is_as_one_elsewhere(s3, monkeypatch):
    """A cleaner of /tmp takes what is old, also below one that holds a lock for weeks."""
    unreleased(s3, monkeypatch)
    lock_file().unlink()
    with pytest.raises(LakeError, match="another"):
        take()
    s3.now += dt.timedelta(seconds=lease.LEASE_SECONDS)
    with files.exclusive_lock(ADDRESS, "ingest"):
        lock_file().unlink()
        with pytest.raises(LakeError, match="another"):
            take()


def test_locks_of_two_endpoints_are_two(s3, monkeypatch):
    with files.exclusive_lock(ADDRESS, "ingest"):
        mine = s3.text, s3.version
        s3.text = None  # the other endpoint's
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
        assert take()
        s3.text, s3.version = mine


@pytest.mark.parametrize(
    "answer", ["PreconditionFailed", "503"]
)  # boto3's next try was told so; or it gave up
def test_a_beat_and_a_release_whose_answers_are_lost_are_no_loss(s3, monkeypatch, answer):
    s3.answer = answer
    with monkeypatch.context() as patch:
        patch.setattr(lease, "HEARTBEAT_SECONDS", 0.01)
        with files.exclusive_lock(ADDRESS, "ingest"):
            s3.lose = 1
            wait_until(lambda: json.loads(s3.text).get("beat", 0) > 3, "some beats")
            with pytest.raises(LakeError, match="another"):
                take()
    with files.exclusive_lock(ADDRESS, "ingest"):
        s3.lose = 1
    assert "released" in json.loads(s3.text)


@pytest.mark.parametrize("meanwhile", [of_another(), {}])
def test_one_that_stood_still_for_too_long_is_told_in_the_end_and_takes_nothing_from_its_heir(
    s3, meanwhile
):
    with (
        pytest.raises(LakeError, match="lost while it was held"),
        files.exclusive_lock(ADDRESS, "ingest"),
    ):
        s3.put(**meanwhile, **({} if meanwhile else {"by": ""}))
        there = s3.text
    assert s3.text == there


def test_its_own_error_comes_first(s3):
    with pytest.raises(ZeroDivisionError), files.exclusive_lock(ADDRESS, "ingest"):
        s3.put(**of_another())
        1 / 0  # noqa: B018


def test_an_s3_that_says_no_is_no_reason_to_wait(s3, monkeypatch):
    def no(*given, **more):
        raise StackError("not allowed")

    monkeypatch.setattr(lease._LockObject, "_call", no)
    for what in ("ingest", ""):
        with pytest.raises(StackError, match="not allowed"), files.exclusive_lock(ADDRESS, what):
            pass
