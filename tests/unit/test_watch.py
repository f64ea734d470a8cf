"""`workbench watch` without services: the texts of problems, thresholds, notifications, metrics."""

import re
import socket
import socketserver
import string
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import on_aws
import pandas
import pytest
import requests
import typer
from prometheus_client import CollectorRegistry, generate_latest
from workbench import hudi, operate
from workbench.base import notices, params, paths
from workbench.base.errors import LakeError, ParamsError, StackError
from workbench.base.paths import ROOT
from workbench.base.secrets import Secret
from workbench.cli import main as command_line
from workbench.cli import operate as commands
from workbench.flow.capture import Capture
from workbench.flow.flow import CaptureFlow
from workbench.operate import metrics, notifying, source
from workbench.operate.lake import Fresh, LakeReader, quantiles
from workbench.operate.messages import Sample, TopicReader
from workbench.operate.observe import FlowReader
from workbench.operate.problems import PROBLEMS, Observation, level_of, problem
from workbench.operate.source import Memory
from workbench.topic.registry import Decoder
from worlds import with_settings


@pytest.fixture
def world(monkeypatch, tmp_path):
    """World `local` with a webhook and a mail server on loopback, and its state in a folder of its own."""
    monkeypatch.setattr("workbench.base.paths.VAR_DIR", tmp_path)
    return params.load("local")


def with_watch(world, **settings):
    return world.model_copy(update={"watch": world.watch.model_copy(update=settings)})


def with_webhook(world, monkeypatch, port):
    monkeypatch.setenv("WORKBENCH_SECRET_WATCH_WEBHOOK", f"http://127.0.0.1:{port}/token")
    return with_watch(world, webhook=Secret("watch.webhook", "", ""))


def observed(*problems, **fields):
    return [Observation("payments", problems=[*problems], **fields)]


DISK = problem("disk_full", "red", folder="var", mib=100)


def test_each_problem_has_a_heading_that_says_what_to_do_in_the_section_of_its_signal():
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    sections = dict(part.split("\n", 1) for part in text.split("\n### ")[1:])
    for kind, known in PROBLEMS.items():
        assert f"#### {kind}\n\n" in sections[known["signal"]], kind
        for name in re.findall(r"operations\.md#(\w+)", known["step"]):
            assert f"\n#### {name}\n" in text, kind
    known_commands = typer.main.get_command(command_line.app).commands
    for words in re.findall(r"`workbench ([a-z ]+)", text):
        first, *others = words.split()
        group = getattr(known_commands[first], "commands", None)
        assert group is None or others[0] in group, words


def test_the_texts_of_each_problem_can_be_formatted():
    for kind, known in PROBLEMS.items():
        fields = {
            name.split("!")[0]
            for text in (known["text"], known["step"])
            for _, name, _, _ in string.Formatter().parse(text)
            if name
        }
        numbers = ("seconds", "mib", "hours", "ratio", "to_topic", "to_lake")
        found = problem(kind, "red", **{f: 1.0 if f in numbers else "x" for f in fields})
        assert found.level in ("amber", "red") and found.signal and found.step


def test_the_commands_of_each_step_name_the_flow_and_the_world(world):
    reader = FlowReader("payments", world, CaptureFlow([]))
    fields = {
        "hint": "see the docs",
        "connector": "own_payments",
        "command": "forget payments",
        "folder": "a/b",
    }
    numbers = dict.fromkeys(("to_topic", "to_lake"), 1.0)
    for kind, known in PROBLEMS.items():
        step = known["step"].format(**{**reader._values, **fields, **numbers})
        for command in re.findall("workbench [^;:,]*", step):
            assert "--world local" in command, kind
    steps = {
        kind: known["step"].format(**{**reader._values, **fields, **numbers})
        for kind, known in PROBLEMS.items()
    }
    assert steps["unread_old"].startswith("workbench ingest payments --world local")
    assert steps["connector_failed"].endswith(
        "workbench connector restart own_payments --world local"
    )
    assert steps["source_down"] == "workbench source check postgres --world local"


@pytest.mark.parametrize(
    "value, limits, level",
    [
        (9, (10, 60), ""),
        (10, (10, 60), "amber"),
        (60, (10, 60), "red"),
        (3000, (2048, 512), ""),
        (2048, (2048, 512), "amber"),
        (100, (2048, 512), "red"),
    ],
)
def test_limits_rise_or_fall(value, limits, level):
    assert level_of(value, limits) == level


def test_freshness_is_that_of_the_whole_way():
    found = quantiles([Fresh(0, 0.1, 0.9), Fresh(0, 0.3, 2.7)])
    assert found == pytest.approx({"p50": 2.0, "p95": 2.9, "to_topic": 0.2, "to_lake": 1.8})
    assert quantiles([]) is None


def test_a_line_for_each_flow_and_each_problem():
    texts = [text for text, _ in operate.lines(observed(DISK))]
    assert "payments" in texts[1] and " red " in texts[1]
    assert texts[2].startswith("payments disk, disk_full: var has 100 MiB left\n    clean the lake")


class Webhook(BaseHTTPRequestHandler):
    """Keeps the requests' bodies; its server's `status` is the answer."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append(body.decode())
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


class Mail(socketserver.StreamRequestHandler):
    """Accepts one mail (RFC 5321, as far as smtplib needs it)."""

    def handle(self):
        self.wfile.write(b"220 ready\r\n")
        data = False
        for line in self.rfile:
            self.server.bodies.append(line.decode())
            if data:
                data = line != b".\r\n"
                if not data:
                    self.wfile.write(b"250 kept\r\n")
            elif line[:4].upper() == b"DATA":
                data = True
                self.wfile.write(b"354 go on\r\n")
            else:
                self.wfile.write(b"221 bye\r\n" if line[:4].upper() == b"QUIT" else b"250 yes\r\n")


@pytest.fixture
def serve():
    """Return a function that starts a server in a thread."""
    servers = []

    def start(kind, handler):
        server = kind(("127.0.0.1", 0), handler)
        server.bodies, server.status = [], 200
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server, server.server_address[1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_one_message_for_a_change_and_one_for_the_recovery(world, serve, monkeypatch):
    server, port = serve(HTTPServer, Webhook)
    world = with_webhook(world, monkeypatch, port)
    monkeypatch.setattr(notifying, "PAUSE_S", 0.0)
    for seen in (observed(DISK), observed(DISK), observed(), observed()):
        notifying.notify(world, ["webhook"], seen)
    assert len(server.bodies) == 2
    assert "red: payments disk" in server.bodies[0] and "100 MiB left" in server.bodies[0]
    assert "recovered: payments disk" in server.bodies[1]


def test_a_signal_that_changes_to_and_fro_is_reported_once_a_minute(world, serve, monkeypatch):
    server, port = serve(HTTPServer, Webhook)
    to = with_webhook(world, monkeypatch, port)
    for seen in (observed(DISK), observed(), observed(DISK), observed()):
        notifying.notify(to, ["webhook"], seen)
    assert len(server.bodies) == 1


def test_a_message_that_was_not_accepted_is_repeated(world, serve, monkeypatch):
    server, port = serve(HTTPServer, Webhook)
    server.status = 400
    to = with_webhook(world, monkeypatch, port)
    with pytest.raises(StackError, match="webhook.*400") as raised:
        notifying.notify(to, ["webhook"], observed(DISK))
    assert "token" not in str(raised.value)
    server.status = 200
    assert notifying.notify(to, ["webhook"], observed(DISK)) and len(server.bodies) == 2


def test_a_mail(world, serve):
    server, port = serve(socketserver.TCPServer, Mail)
    settings = {"mail_to": "on-call@example.org", "mail_server": f"127.0.0.1:{port}"}
    notifying.notify(with_watch(world, **settings), ["mail"], observed(DISK))
    text = "".join(server.bodies)
    assert "To: on-call@example.org" in text and "Subject: workbench local: red: payments" in text


def test_a_message_to_sns(account, world):
    topic = account("sns").create_topic(Name="alarms")["TopicArn"]
    queue = account("sqs").create_queue(QueueName="alarms")["QueueUrl"]
    attributes = account("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
    arn = attributes["Attributes"]["QueueArn"]
    account("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    there = with_watch(world, sns_topic=topic).model_copy(update={"region": on_aws.REGION})
    notifying.notify(there, ["sns"], observed(DISK))
    (message,) = account("sqs").receive_message(QueueUrl=queue)["Messages"]
    assert "red: payments disk" in message["Body"] and "workbench local" in message["Body"]


def test_a_channel_without_an_address_is_an_error(world):
    with pytest.raises(ParamsError, match=r"sns has no address\n.*watch.sns_topic"):
        notices.require_addresses(world, "sns")


def test_a_redirect_of_a_webhook_is_not_followed(world, serve, monkeypatch):
    class Redirect(Webhook):
        def do_POST(self):
            self.server.bodies.append(self.path)
            self.wfile.write(b"HTTP/1.0 307 x\r\nLocation: /elsewhere\r\n\r\n")

    server, port = serve(HTTPServer, Redirect)
    with pytest.raises(StackError, match="307"):
        notices.send(with_webhook(world, monkeypatch, port), "webhook", "text")
    assert server.bodies == ["/token"]


@pytest.mark.parametrize("host", ["x" * 64, "x..y", "a b", "[", ""])
def test_an_impossible_address_is_an_error_and_no_end(world, monkeypatch, host):
    monkeypatch.setenv("WORKBENCH_SECRET_WATCH_WEBHOOK", f"http://{host}/token")
    webhook = Secret("watch.webhook", "", "")
    for channel, mail_to in (("webhook", ""), ("mail", "a@x.org"), ("mail", "a\nb@x.org")):
        to = with_watch(world, webhook=webhook, mail_to=mail_to, mail_server=f"{host}:25")
        with pytest.raises(StackError, match=f"{channel} does not accept") as raised:
            notices.send(to, channel, "text")
        assert "token" not in str(raised.value)


def test_a_failed_notification_is_a_line_of_each_report(world, monkeypatch, capsys):
    to = with_webhook(world, monkeypatch, 9)  # nothing listens there

    def watch_twice(loaded, *flows, report, **options):
        for _ in range(2):
            report(observed(DISK))
        return 2

    monkeypatch.setattr(operate, "watch", watch_twice)
    monkeypatch.setattr(commands, "open_world", lambda name: to)
    with pytest.raises(typer.Exit) as ended:
        commands.watch([], once=True, json=False, interval=0, notify=["webhook"], metrics=0)
    shown = capsys.readouterr()
    assert ended.value.exit_code == 2 and shown.out.count("disk_full") == 2, shown.out
    assert shown.err.count("webhook does not accept the message") == 2


def sent_file():
    return paths.state_dir() / "watch" / "local.sent.json"


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a": 1}', '{"payments disk": ["red", NaN]}', "\udc80"]
)
def test_a_damaged_file_of_what_was_sent_sends_all_again(world, serve, monkeypatch, text):
    server, port = serve(HTTPServer, Webhook)
    to = with_webhook(world, monkeypatch, port)
    notifying.notify(to, ["webhook"], observed(DISK))
    sent_file().write_bytes(text.encode("utf-8", "surrogateescape"))
    changes = notifying.notify(to, ["webhook"], observed(DISK))
    assert "is damaged" in changes[0] and "red: payments disk" in server.bodies[1]
    assert notifying.notify(to, ["webhook"], observed(DISK)) == []


def test_what_was_sent_cannot_be_stored(world, serve, monkeypatch):
    _, port = serve(HTTPServer, Webhook)
    sent_file().mkdir(parents=True)
    with pytest.raises(StackError, match="cannot be stored"):
        notifying.notify(with_webhook(world, monkeypatch, port), ["webhook"], observed(DISK))


@pytest.mark.parametrize("interval", [-5, float("nan"), float("inf"), 1e300])
def test_an_interval_is_a_number_of_seconds(world, interval):
    with pytest.raises(ParamsError, match="the interval is"):
        operate.watch(world, report=print, interval=interval, once=True)


@pytest.mark.parametrize("key", ["interval_s: 0", "interval_s: .inf", "freshness_s: [.nan, .nan]"])
def test_limits_of_a_params_file_are_numbers(tmp_path, key):
    path = tmp_path / "w.yaml"
    path.write_text(f"extends: local\nwatch:\n  {key}\n")
    with pytest.raises(ParamsError, match=f"watch.{key.split(':')[0]}"):
        params.load_file(path)


def test_metrics_are_no_page_of_another_site():
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
        with pytest.raises(StackError, match="metrics cannot be served"):
            metrics.serve(port)
    metrics.serve(port).observed = observed(DISK)
    url = f"http://127.0.0.1:{port}/metrics"
    for headers in (
        {"Host": f"evil.example:{port}"},
        {"Host": f"localhost:{port + 1}"},
        {"Origin": "http://evil.example"},
    ):
        answer = requests.get(url, headers=headers, timeout=5)
        assert answer.status_code == 403 and "workbench_flow_state" not in answer.text
    for headers in ({}, {"Host": f"localhost:{port}"}):
        assert "workbench_flow_state" in requests.get(url, headers=headers, timeout=5).text


@pytest.mark.parametrize("text", ["", "[]", '{"unknown": 1}', '{"grown": 7}', "\udc80"])
def test_a_damaged_memory_of_another_version_begins_anew(world, text, capfd):
    file = paths.state_dir() / "watch" / "local.payments.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    captured = CaptureFlow([])
    assert FlowReader("payments", world, captured).memory == Memory()
    assert ("is damaged" in capfd.readouterr().err) == ("unknown" not in text)


def test_later_processes_report_changes_that_reach_no_topic(world, monkeypatch):
    """What each `watch --once` does: the counts of the source grow, the topic does not."""
    captured = CaptureFlow([Capture("public.orders", "id", "outbox_source")])
    rows = iter([10, 12, 12, 12])
    monkeypatch.setattr(
        source.postgres,
        "publications",
        lambda *args: pandas.DataFrame(
            {"publication": [captured.publication], "table": ["public.orders"]}
        ),
    )
    monkeypatch.setattr(
        source.postgres,
        "query",
        lambda *args: pandas.DataFrame({"name": ["public.orders"], "n": [next(rows)]}),
    )

    def look(now):
        monkeypatch.setattr(source.time, "time", lambda: now)
        reader = FlowReader("payments", world, captured)
        reader.source.topics = {"orders": TopicReader("t", "json", ends={0: 3})}
        found = [each.kind for each in reader.source._observe_silence()]
        reader._store_memory(Observation("payments"))
        return found

    limit = world.watch.silent_s
    assert look(1000.0) == look(2000.0) == look(2000.0 + limit) == []
    assert look(2001.0 + limit) == ["no_records"]


def test_metrics():
    registry, collector = CollectorRegistry(), metrics.FlowCollector()
    registry.register(collector)
    collector.observed = observed(
        DISK,
        freshness={"p50": 0.5, "p95": 1.5, "to_topic": 0.1, "to_lake": 0.4},
        unread={"payments": 7},
        retained={"slot": 1024},
    )
    text = generate_latest(registry).decode()
    for line in (
        'workbench_freshness_seconds{flow="payments",quantile="0.95"} 1.5',
        'workbench_flow_state{flow="payments",signal="disk"} 2.0',
        'workbench_unread_messages{flow="payments",table="payments"} 7.0',
        'workbench_slot_retained_bytes{flow="payments",slot="slot"} 1024.0',
    ):
        assert line in text


def test_two_problems_of_one_signal_are_one_sample():
    registry, collector = CollectorRegistry(), metrics.FlowCollector()
    registry.register(collector)
    collector.observed = observed(DISK, DISK)
    text = generate_latest(registry).decode()
    assert text.count('workbench_flow_state{flow="payments",signal="disk"}') == 1
    assert 'workbench_flow_state{flow="payments",signal="slot"} 0.0' in text


def test_a_mail_server_that_refuses_is_an_error(world):
    settings = {"mail_to": "on-call@example.org", "mail_server": "127.0.0.1:9"}
    with pytest.raises(StackError, match="mail does not accept"):
        notifying.notify(with_watch(world, **settings), ["mail"], observed(DISK))


@pytest.mark.parametrize("value", [b"null", b"[1]", b'"x"', b'{"payload": null}', b"no JSON"])
def test_a_message_that_cannot_be_decoded_has_no_time(world, value):
    class Message:
        def value(self):
            return value

        def headers(self):
            return None

    reader = TopicReader("t", "json")
    assert reader.commit_time(Decoder(world), Message()) == 0


def test_messages_are_visible_with_the_commit_that_has_them():
    """In two tables of one topic, each by its own commits."""
    now = time.time()
    samples = [Sample(0, offset, now - 9, now - 8) for offset in range(4)]
    fast, slow = LakeReader(None, "t"), LakeReader(None, "t")
    fast.commits = {"1": ({0: 3}, now - 5), "2": ({0: 4}, now - 1)}
    for lake in (fast, slow):
        lake.add(samples, {0: 4})
    assert [round(each.to_lake) for each in fast.fresh] == [3, 3, 3, 7]
    assert (len(fast.waiting), len(slow.waiting), len(slow.fresh)) == (0, 4, 0)
    assert round(slow.waiting_s(4)) == 8 and fast.waiting_s(0) == 0


def test_messages_of_a_topic_that_was_made_anew_are_not_waited_for():
    samples = [Sample(0, offset, 0, time.time() - 90) for offset in (2, 500)]
    lake = LakeReader(None, "t")
    lake.add(samples, {0: 501})
    assert round(lake.waiting_s(2)) == 90
    lake.add([], {0: 3})
    assert [each.offset for each in lake.waiting] == [2]


def test_messages_wait_for_the_first_ingest_of_a_table(tmp_path):
    roots = {name: f"file:{tmp_path}/{name}" for name in ("tables", "checkpoints", "dead_letters")}
    world = with_settings(params.load("local"), lake=roots)
    table = hudi.table(world, "trips", database="bikes", key=("id",), ordering="v")
    lake = LakeReader(table, "t")
    lake.add([Sample(0, 0, 0, time.time() - 90)], {0: 1})
    lake.read()
    assert round(lake.waiting_s(1)) == 90
    lake.commits = {"1": ({0: 1}, time.time())}  # the table had a commit, and was removed
    lake.read()
    assert not lake.waiting and not lake.commits


def test_after_a_restore_the_wait_begins_anew():
    lake = LakeReader(None, "t")
    assert lake.waiting_s(5) == pytest.approx(0, abs=0.1)
    lake._unread_since -= 20
    assert lake.waiting_s(5) == pytest.approx(20, abs=0.1)


@pytest.mark.parametrize(
    "name",
    ["20_query_based_cdc", "70_eventual_consistency", "50_time_travel/artists", "90_your_own"],
)
def test_what_cannot_be_captured_anew_is_refused_before_anything_is_removed(world, name):
    with pytest.raises(LakeError, match="no flow with lake tables"):
        operate.recapture(world, name)
