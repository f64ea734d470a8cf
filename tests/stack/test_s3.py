"""World `s3`: the lake on an S3 endpoint that the stack starts. Locks by conditional writes,
notebooks, and an endpoint that stands still or refuses in the middle of a commit."""

import contextlib
import multiprocessing
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import boto3
import instance
import psutil
import pytest
import s3_help
import worlds
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from lake_help import SCHEMA, change_record, new_table, new_topic, produce, table_content
from workbench import hudi, stack
from workbench.base import files, params, paths, secrets, split_host_port
from workbench.base.errors import LakeError
from workbench.base.wait import wait_until
from workbench.checks import check
from workbench.hudi import timeline
from workbench.run import runner
from workbench.spark import session
from workbench.stack import process, services
from worlds import with_settings

AWAY = 30  # seconds that the endpoint is not to be had
ROWS = 3_000


@pytest.fixture(scope="module")
def lake():
    """World s3 in an instance of its own, its endpoint started."""
    with instance.world_of_its_own("s3", 60, ["s3"]) as world:
        yield world


def test_it_listens_on_loopback_and_wants_the_key(lake, tmp_path):
    seen = {
        c.laddr.ip
        for c in process.running_process("s3").net_connections("inet")
        if c.status == psutil.CONN_LISTEN
    }
    assert seen == {"127.0.0.1"}
    for name, key, code in (
        (services.S3_KEY_ID, "another", "SignatureDoesNotMatch"),
        ("X", "y", "InvalidAccessKeyId"),
    ):
        with pytest.raises(ClientError, match=code):
            boto3.client(
                "s3",
                region_name="us-east-1",
                aws_access_key_id=name,
                aws_secret_access_key=key,
                endpoint_url=lake.lake.endpoint,
            ).list_objects_v2(Bucket="lake")
    files.write_text("s3a://lake/a b/c=ä+*~.txt", "text")
    assert files.read_text("s3a://lake/a b/c=ä+*~.txt") == "text" and list(
        files.list_files("s3a://lake/a b")
    )
    for _ in range(2):  # a repetition moves nothing and removes nothing
        files.move("s3a://lake/a b", "s3a://lake/moved")
    assert {*files.list_files("s3a://lake/moved")} == {"c=ä+*~.txt"}
    assert not files.list_files("s3a://lake/a b")
    key = secrets.read()[services.S3_KEY]
    for kept in (secrets.secrets_dir() / services.S3_KEY, secrets.s3_credentials_file()):
        assert key in kept.read_text() and kept.stat().st_mode & 0o777 == 0o600
    told = " ".join(process.running_process("s3").cmdline()) + process.log_file("s3").read_text()
    assert key not in told and key not in str(process.running_process("s3").environ())


def test_of_eight_writers_exactly_one_gets_the_lock_thirty_times(lake):
    spawn = multiprocessing.get_context("spawn")
    barrier, got = spawn.Barrier(8), spawn.Queue()
    writers = [
        spawn.Process(target=s3_help.compete_for_locks, args=(n, barrier, got)) for n in range(8)
    ]
    for each in writers:
        each.start()
    winners = [got.get(timeout=120) for _ in range(30)]
    for each in writers:
        each.join(60)
    assert [each.exitcode for each in writers] == [0] * 8 and got.empty()
    assert sorted(each for each, _ in winners) == list(range(30))
    assert files.read_text("s3a://lake/count") == "40", "those who wait come one after another"


def test_a_client_that_stops_in_mid_request_holds_nobody_up(lake):
    """It has sent the head of a conditional write, and no body."""
    host, port = split_host_port(lake.lake.endpoint)
    head = AWSRequest(
        "PUT",
        f"{lake.lake.endpoint}/lake/stopped",
        headers={"If-None-Match": "*", "Content-Length": "9", "Host": f"{host}:{port}"},
        data=b"not sent!",
    )
    credentials = Credentials(services.S3_KEY_ID, secrets.read()[services.S3_KEY])
    S3SigV4Auth(credentials, "s3", lake.region).add_auth(head)
    lines = [f"{name}: {value}" for name, value in head.headers.items()]
    with socket.create_connection((host, port)) as stopped:
        stopped.sendall("\r\n".join(["PUT /lake/stopped HTTP/1.1", *lines, "", ""]).encode())
        server = process.running_process("s3")
        wait_until(
            lambda: any(c.raddr[1:] == stopped.getsockname()[1:] for c in server.net_connections()),
            "the server to accept it",
            timeout=10,
        )
        with ThreadPoolExecutor(1) as pool:
            pool.submit(hold_lock_once, "s3a://lake/other").result(timeout=30)
        stopped.sendall(b"not sent!")
        assert stopped.recv(15).startswith(b"HTTP/1.1 200"), "the request was a valid one"


def hold_lock_once(address):
    with files.exclusive_lock(address, "test"):
        pass


def test_the_lock_of_a_killed_process_holds_nobody_up(lake):
    spawn = multiprocessing.get_context("spawn")
    holder = spawn.Process(target=s3_help.hold_lock_forever)
    holder.start()
    address = "s3a://lake/killed"
    wait_until(
        lambda: "pid" in (files.read_text(f"{address}.lock") or ""),
        "the other to hold it",
        timeout=60,
    )
    with (
        pytest.raises(LakeError, match="another test is running") as error,
        files.exclusive_lock(address, "test"),
    ):
        pass
    assert f"process {holder.pid} holds" in error.value.location
    holder.kill()
    holder.join()
    assert f'"pid": {holder.pid}' in files.read_text(f"{address}.lock"), "it has not released it"
    with files.exclusive_lock(address, "test"):
        pass


def test_labels_that_are_given_at_once_are_all_kept(lake, monkeypatch):
    monkeypatch.setattr(
        timeline, "completed_actions", lambda table: [SimpleNamespace(instant="20260101120000001")]
    )
    table = hudi.table(lake, "labelled", key=("id",), ordering="v")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: hudi.label(lake, table, f"n{n}"), range(16)))
    assert set(hudi.labels(lake, table)["label"]) == {f"n{n}" for n in range(16)}


@pytest.mark.parametrize(
    "track",
    [
        # 14_changes makes 829 partitions: minutes
        ["11_source_database", "12_connectors", "13_hudi_ingest", "15_dashboard"],
        ["10_outbox"],
        ["50_time_travel"],
    ],
)
@pytest.mark.drill
def test_notebooks_pass_unchanged(lake, tmp_path, monkeypatch, track):
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path / "runs"))
    result = runner.run(track, "s3", timeout=1800, progress=False)
    assert result.status == "passed", "\n".join(f"{n.path}: {n.error}" for n in result.notebooks)
    assert not list(paths.state_dir().glob("lake/**/*.parquet")) and files.list_dir(
        lake.lake.tables
    )


# ---- faults


class Relay:
    """Passes connections on to a port of this machine, but while it is `away`: then it refuses, and
    cuts what is there."""

    def __init__(self, port):
        self.port, self.open, self.address = port, [], ("127.0.0.1", 0)
        self.listen()

    def listen(self):
        self.door = socket.create_server(self.address)
        self.address = self.door.getsockname()
        threading.Thread(target=self.serve, args=[self.door], daemon=True).start()

    def serve(self, door):
        with contextlib.suppress(OSError):  # it was closed
            while True:
                one, other = door.accept()[0], socket.create_connection(("127.0.0.1", self.port))
                threading.Thread(target=self.between, args=[one, other], daemon=True).start()

    def between(self, one, other):
        self.open += [one, other]
        back = threading.Thread(target=self.pass_on, args=[other, one], daemon=True)
        back.start()
        self.pass_on(one, other)
        back.join()
        for each in (one, other):  # notebooks ask thousands of times: what is over is closed
            each.close()
            with contextlib.suppress(ValueError):  # it was cut
                self.open.remove(each)

    def pass_on(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self):
        """Cut all connections. Without the shutdown a thread that reads from a socket would keep
        its connection open."""
        for each in (self.door, *self.open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self.open = []

    @contextlib.contextmanager
    def away(self):
        self.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(self.address)
        yield
        self.listen()


@contextlib.contextmanager
def standing_still(world):
    process.running_process("s3").suspend()
    yield
    process.running_process("s3").send_signal(signal.SIGCONT)


@pytest.fixture(scope="module")
def relay(lake):
    it = Relay(split_host_port(lake.lake.endpoint)[1])
    yield it
    it.close()


@pytest.fixture(scope="module")
def far(lake, relay):
    """The same lake, reached by way of the relay: an endpoint that is not the stack's, with the key
    as a file."""
    endpoint = "http://{}:{}".format(*relay.address)
    world = with_settings(lake, lake={"endpoint": endpoint})
    with worlds.no_world(), pytest.MonkeyPatch.context() as patch:
        variables = {**params.lake_variables(lake), "AWS_ENDPOINT_URL_S3": endpoint}
        for name, value in variables.items():
            patch.setenv(name, value) if value else patch.delenv(name, raising=False)
        # the stack has no service at this port
        patch.setattr(params.World, "uses_embedded_s3", False)
        assert "s3" not in services.with_dependencies(world, services.DEFAULT_SERVICES)
        with worlds.activated(world):
            stack.up(world, ["kafka", "spark"])
            yield world


@pytest.mark.parametrize(
    "fault, kind",
    [
        pytest.param(fault, kind, marks=pytest.mark.drill)
        for fault in ("refuses", "stands still")
        for kind in ("cow", "mor")
    ],
)
def test_an_endpoint_that_is_away_in_mid_commit_costs_time_and_no_row(far, relay, fault, kind):
    topic, table = new_topic(far), new_table(far, type=kind)
    spark = session(far)
    produce(far, topic, *[change_record(n, 1, "old", part=f"p{n % 3}") for n in range(ROWS)])
    hudi.ingest(spark, far, hudi.Topic(topic), table, schema=SCHEMA)
    produce(
        far,
        topic,
        *[change_record(n, 2, "new", part=f"p{n % 3}", op="u") for n in range(0, ROWS, 2)],
    )
    raised, before = [], len(timeline.completed_actions(table))

    def work():
        try:
            hudi.ingest(spark, far, hudi.Topic(topic), table, schema=SCHEMA)
        except Exception as e:  # noqa: BLE001 - whatever it is, a second run is to mend it
            raised.append(e)

    worker = threading.Thread(target=work)
    worker.start()
    check.eventually(
        "a commit is under way",
        lambda: any(
            action.endswith("inflight")
            for _, action, _ in timeline.timeline_files(table)
            if len(timeline.completed_actions(table)) == before
        ),
        timeout=60,
        interval=0.01,
    )
    with standing_still(far) if fault == "stands still" else relay.away():
        threading.Event().wait(AWAY)
        done_meanwhile = not worker.is_alive()
    worker.join(240)
    assert not worker.is_alive()
    print(fault, kind, "raised" if raised else "went on", raised[:1])
    assert not done_meanwhile or raised, "it was over before the endpoint was away"
    hudi.ingest(spark, far, hudi.Topic(topic), table, schema=SCHEMA)  # a retry, or nothing new
    expected = sorted(
        (n, f"p{n % 3}", "old" if n % 2 else "new", 1 + (n % 2 == 0)) for n in range(ROWS)
    )
    assert table_content(spark, table) == expected
    assert len(timeline.completed_actions(table)) == before + 1, "one commit more, and no half one"
    assert hudi.read_arrow(table).num_rows == ROWS
    hudi.label(far, table, "after")
    hudi.drop(spark, far, table)
    assert not files.list_files(table.base)


def test_its_restart_is_an_empty_lake_and_says_so(lake, capsys):
    files.write_text("s3a://lake/kept", "text")
    key = secrets.read()[services.S3_KEY]
    process.running_process("s3").kill()
    stack.ensure_running(lake, "s3")  # as a notebook does
    assert (
        "s3 was started: it holds the lake in memory: the lake is empty now"
        in capsys.readouterr().out
    )
    assert files.read_text("s3a://lake/kept") is None and files.list_dir(lake.lake.root) == []
    assert secrets.read()[services.S3_KEY] == key
