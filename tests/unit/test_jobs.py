"""Connectors that are jobs of ours: what is deployed, kept, told, removed. Real polls and landings:
tests/notebooks."""

import json
from types import SimpleNamespace

import pytest
from workbench import connect, landing
from workbench.base import files, params
from workbench.base.errors import ConnectorError, LakeError
from workbench.landing import builtin_runner, job, polling, sources
from worlds import with_settings

SOURCE, SINK = "pagila_jdbc_source_00", "pagila_s3_sink_00"


def work(patch, kind, does):
    patch.setitem(builtin_runner.RUNNERS, kind, does)


@pytest.fixture
def there(tmp_path, monkeypatch):
    """A world, and a Connect with one connector and no plugin but Debezium's."""

    def status(world, name):
        if name not in running:
            raise ConnectorError(f"there is no connector {name!r}")
        return running[name]

    world = with_settings(
        params.load("local"),
        lake={"checkpoints": f"file:{tmp_path}", "landing": f"file:{tmp_path}/landed"},
    )
    running, plugins = (
        {"outbox_source": {"worker": "127.0.0.1:8083"}},
        [{"class": "io.debezium.Postgres"}],
    )
    monkeypatch.setattr(connect, "plugins", lambda world: plugins)
    monkeypatch.setattr(connect, "names", lambda world: sorted(running))
    monkeypatch.setattr(connect, "status", status)
    monkeypatch.setattr(connect, "delete", lambda world, name: running.pop(name, None))
    monkeypatch.setattr(
        connect,
        "apply",
        lambda world, name, config: running.setdefault(name, {"worker": "connect"}),
    )
    work(monkeypatch, "source", lambda world, config: f"polled {config['name']}")
    work(monkeypatch, "sink", lambda world, config: f"landed {config['name']}")
    return SimpleNamespace(world=world, plugins=plugins, running=running)


def deploy(there, *names):
    return [landing.apply(there.world, name, connect.config(there.world, name)) for name in names]


def states(there, *names):
    return [landing.status(there.world, name)["tasks"][0]["state"] for name in names]


def test_a_connector_is_unassigned_until_a_step_and_then_runs(there):
    source, sink = deploy(there, SOURCE, SINK)
    assert (source["type"], sink["type"], source["state"]) == ("source", "sink", "UNASSIGNED")
    assert source["tasks"] == [
        {"id": 0, "state": "UNASSIGNED", "worker": builtin_runner.WORKER, "error": ""}
    ]
    assert landing.names(there.world) == ["outbox_source", SOURCE, SINK]
    done = landing.run_once(there.world, SINK, SOURCE)
    assert list(done.items()) == [(SOURCE, f"polled {SOURCE}"), (SINK, f"landed {SINK}")], (
        "sources first"
    )
    assert states(there, SOURCE, SINK) == ["RUNNING", "RUNNING"]


def test_the_same_again_changes_nothing_and_another_configuration_begins_anew(there):
    deploy(there, SOURCE)
    landing.run_once(there.world)
    deploy(there, SOURCE)
    assert states(there, SOURCE) == ["RUNNING"]
    other = {**connect.config(there.world, SOURCE), "batch.max.rows": "7"}
    landing.apply(there.world, SOURCE, other)
    assert states(there, SOURCE) == ["UNASSIGNED"]


@pytest.mark.parametrize(
    "name, change, says",
    [
        (SOURCE, {"tabel.whitelist": "address"}, "tabel.whitelist"),
        (SOURCE, {"connection.password": "geheim"}, "connection.password"),
        (
            SINK,
            {"producer.override.sasl.jaas.config": 'a.B required username="x" password="geheim";'},
            "producer.override.sasl.jaas.config' contains a secret",
        ),
        (
            SINK,
            {"producer.override.ssl.truststore.password": "geheim"},
            "truststore.password' contains a secret",
        ),
        (
            SINK,
            {
                "producer.override.sasl.jaas.config": 'a.B required username="${file:a:b}" password="geheim";'
            },
            "producer.override.sasl.jaas.config' contains a secret",
        ),
        (
            SINK,
            {"value.converter.apicurio.registry.url": "http://me:geheim@127.0.0.1:1/x"},
            "registry.url' contains a secret",
        ),
        (
            SINK,
            {
                "transforms": "a",
                "transforms.a.type": "org.apache.kafka.connect.transforms.Cast$Value",
            },
            "Cast",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_whole(there, name, change, says):
    deploy(there, name)
    kept = files.read_text(builtin_runner._state_path(there.world))
    with pytest.raises(ConnectorError, match=says) as e:
        landing.apply(there.world, name, {**connect.config(there.world, name), **change})
    assert "geheim" not in str(e.value)
    assert files.read_text(builtin_runner._state_path(there.world)) == kept


def test_a_plugin_that_no_job_does_the_work_of_is_judged_by_the_connect(there, monkeypatch):
    def judge(world, name, config):
        raise ConnectorError(f"this Connect has no plugin {config['connector.class']!r}")

    monkeypatch.setattr(connect, "apply", judge)
    with pytest.raises(ConnectorError, match="no plugin 'io.example.Sink'"):
        landing.apply(there.world, "mine", {"connector.class": "io.example.Sink"})
    assert landing.names(there.world) == ["outbox_source"]


def test_where_the_plugin_is_there_the_job_steps_aside(there):
    deploy(there, SOURCE, SINK)
    there.plugins.append({"class": sources.JDBC})
    deploy(there, SOURCE)
    assert landing.status(there.world, SOURCE) == {"worker": "connect"}
    assert list(landing.run_once(there.world, SOURCE, SINK)) == [SINK], (
        "the other one works by itself"
    )
    landing.delete(there.world, SOURCE)
    assert landing.names(there.world) == ["outbox_source", SINK]


def test_a_name_that_the_connect_has_is_refused(there):
    with pytest.raises(ConnectorError, match="runs in Kafka Connect"):
        landing.apply(there.world, "outbox_source", connect.config(there.world, SOURCE))


def test_one_that_fails_says_why_keeps_nobody_from_working_and_is_tried_again(there, monkeypatch):
    deploy(there, SOURCE, SINK)

    def refuse(world, config):
        raise LakeError("the table is gone")

    with monkeypatch.context() as broken:
        work(broken, "source", refuse)
        with pytest.raises(LakeError, match="the table is gone"):
            landing.run_once(there.world)
    assert landing.status(there.world, SOURCE)["error"] == "the table is gone"
    assert states(there, SOURCE, SINK) == ["FAILED", "RUNNING"]
    landing.run_once(there.world)
    assert landing.status(there.world, SOURCE)["error"] == "" and states(there, SOURCE) == [
        "RUNNING"
    ]


def test_one_whose_state_cannot_be_saved_keeps_nobody_from_working(there, monkeypatch):
    deploy(there, SOURCE, SINK)
    real, failures = builtin_runner._save_state, [LakeError("the state is locked")]

    def save(world, name, config, state, *more):
        if failures:
            raise failures.pop()
        real(world, name, config, state, *more)

    monkeypatch.setattr(builtin_runner, "_save_state", save)
    with pytest.raises(LakeError, match="the state is locked"):
        landing.run_once(there.world)
    assert states(there, SOURCE, SINK) == ["FAILED", "RUNNING"]


def test_a_deleted_source_forgets_how_far_it_was_and_one_that_is_not_there_is_fine(there):
    deploy(there, SOURCE, SINK)
    configs = {name: {"name": name, **connect.config(there.world, name)} for name in (SOURCE, SINK)}
    offsets = polling._offsets_path(there.world, configs[SOURCE])
    prefix = landing.parse(configs[SINK]).prefix_of("pagila.public.address")
    files.write_text(offsets, "{}")
    progress = {"topic_id": "id", "offsets": {"0": 7}, "planned": {"0": 9}}
    files.write_text(job.progress_path(there.world, prefix), json.dumps(progress))
    for name in (SOURCE, SINK, SOURCE):
        landing.delete(there.world, name)
    assert landing.names(there.world) == ["outbox_source"]
    assert files.read_text(offsets) is None
    assert job.read_progress(there.world, prefix) == progress, "as a sink in Kafka Connect"
    with pytest.raises(ConnectorError, match=f"there is no connector '{SOURCE}'"):
        landing.run_once(there.world, SOURCE)


def test_what_is_deleted_or_applied_during_a_step_stays_so(there, monkeypatch):
    deploy(there, SOURCE, SINK)
    other = {**connect.config(there.world, SINK), "flush.size": "7"}
    work(monkeypatch, "source", lambda world, config: landing.delete(world, SOURCE))
    work(monkeypatch, "sink", lambda world, config: landing.apply(world, SINK, other))
    monkeypatch.setattr(polling, "reset_offsets", lambda world, config: None)
    landing.run_once(there.world)
    assert SOURCE not in landing.names(there.world)
    assert builtin_runner._load_state(there.world)[SINK] == {
        "config": other,
        "state": "UNASSIGNED",
        "error": "",
    }


def test_a_step_that_fails_unforeseen_is_told_as_failed(there, monkeypatch):
    deploy(there, SOURCE)
    work(monkeypatch, "source", lambda world, config: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        landing.run_once(there.world)
    assert (
        states(there, SOURCE) == ["FAILED"]
        and "ZeroDivision" in landing.status(there.world, SOURCE)["error"]
    )
