"""Addresses in connector configurations, after the ports of an instance have changed."""

import json
from types import SimpleNamespace

import pytest
from workbench import connect
from workbench.base import ConnectorError, StackError, params, paths
from workbench.stack import addresses, connect_api
from worlds import with_settings


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "VAR_DIR", tmp_path)
    return params.load("local")


def moved(world, by):
    """Return the same world with another port base."""
    base = world.stack.port_base + by
    return with_settings(
        world,
        stack={"port_base": base},
        postgres={"port": base},
        mysql={"port": base + 7},
        kafka={"bootstrap": f"127.0.0.1:{base + 1}"},
        connect={"url": f"http://127.0.0.1:{base + 3}"},
        registry={"url": f"https://127.0.0.1:{base + 4}"},
    )


NAMES = sorted(
    file.stem for file in connect.CONNECTORS_DIR.rglob("*.json") if file.parent.name != "keys"
)
MORE = {"storefront_outbox": {"service": "orders", "routedByValue": "${routedByValue}"}}


@pytest.mark.parametrize("by", [100, 1], ids=["elsewhere", "overlapping"])
@pytest.mark.parametrize("name", NAMES)
def test_every_configuration_becomes_that_of_the_new_ports(world, name, by):
    new = moved(world, by)
    before, wanted = (connect.config(of, name, **MORE.get(name, {})) for of in (world, new))
    assert (
        addresses.replace_addresses(
            before, addresses.service_addresses(world), addresses.service_addresses(new)
        )
        == wanted
    )
    assert (
        addresses.replace_addresses(
            wanted, addresses.service_addresses(new), addresses.service_addresses(new)
        )
        == wanted
    )
    assert addresses.differ_only_in_addresses(before, wanted) is (before != wanted)
    assert not addresses.differ_only_in_addresses(before, {**wanted, "connector.class": "x"})


def test_an_address_of_somebody_else_stays(world):
    old, new = addresses.service_addresses(world), addresses.service_addresses(moved(world, 100))
    port = str(world.postgres.port)
    for config in (
        {"database.hostname": "db.example.com", "database.port": port},
        {"database.hostname": "127.0.0.1", "database.port": "5432"},
        {"url": f"http://10.127.0.0.1:{port}/"},
        {"url": f"http://127.0.0.1:{port}1/"},
        {"poll.interval.ms": port},
        {"port": port},
    ):
        assert addresses.replace_addresses(config, old, new) == config


@pytest.fixture
def worker(monkeypatch):
    """A Kafka Connect: its configurations, and the connectors whose configuration it rejects."""
    configs, refused, asked = {}, set(), []

    def call(service, method, url, body=None, auth=None, **options):
        asked.append(method)
        name = url.split("/")[4].partition("?")[0] if method == "PUT" else ""
        if name in refused:
            return SimpleNamespace(status_code=400, json=lambda: {"message": "Unable to connect"})
        configs.update({name: body} if name else {})
        return SimpleNamespace(
            status_code=200,
            content=b"{}",
            json=lambda: {n: {"info": {"config": c}} for n, c in configs.items()},
        )

    monkeypatch.setattr(connect_api.http, "call", call)
    return SimpleNamespace(configs=configs, refused=refused, asked=asked)


def test_a_refused_one_is_tried_again_at_the_next_start(world, worker):
    said, one, two = [], "moma_source", "movies_source"
    worlds = [world, moved(world, 1), moved(world, 2)]
    worker.configs.update({name: connect.config(world, name) for name in (one, two)})
    addresses.update_connectors(world, said.append)
    assert said == [] and worker.asked == [], "Connect is not asked where nothing has changed"
    worker.refused.add(two)  # its database is not started yet
    for new in worlds[1:]:
        addresses.update_connectors(new, said.append)
        assert worker.configs == {one: connect.config(new, one), two: connect.config(world, two)}
    worker.refused.clear()
    addresses.update_connectors(worlds[2], said.append)
    assert worker.configs == {name: connect.config(worlds[2], name) for name in (one, two)}
    assert "movies_source still has the old addresses" in said[1]
    assert said[-1] == "connector movies_source has the new addresses"
    worker.asked.clear()
    addresses.update_connectors(worlds[2], said.append)
    assert worker.asked == []


def test_one_that_runs_as_a_job_has_them_too(world, worker, tmp_path):
    new = moved(world, 100)
    world, new = (
        with_settings(of, lake={"checkpoints": f"file:{tmp_path}"}) for of in (world, new)
    )
    file, job = tmp_path / addresses.RUNNER_STATE_FILE, {"state": "RUNNING", "error": ""}
    file.write_text(json.dumps({"poll": {**job, "config": connect.config(world, "pagila_poll")}}))
    addresses.update_connectors(world, print)
    addresses.update_connectors(new, print)
    assert json.loads(file.read_text()) == {
        "poll": {**job, "config": connect.config(new, "pagila_poll")}
    }
    assert addresses.deployed_configs(new) == {"poll": connect.config(new, "pagila_poll")}


def test_a_connect_that_does_not_answer_is_told(world, monkeypatch):
    addresses.update_connectors(world, print)
    no = SimpleNamespace(status_code=500, json=lambda: {"message": "no"})
    monkeypatch.setattr(connect_api.http, "call", lambda *_, **__: no)
    with pytest.raises(ConnectorError, match="Connect responds with status 500: no"):
        addresses.update_connectors(moved(world, 5), print)


@pytest.mark.parametrize("again", [0, 1, 2], ids=["back", "to the same ports", "to others"])
@pytest.mark.parametrize("killed_at", range(4))
def test_an_update_that_was_killed_is_finished_and_nothing_is_updated_twice(
    world, worker, monkeypatch, tmp_path, killed_at, again
):
    """The port ranges overlap: the new port of one service is the old port of another."""
    names, job = ("moma_source", "movies_positions", "movies_source"), "pagila_poll"
    worlds = [
        with_settings(of, lake={"checkpoints": f"file:{tmp_path}"})
        for of in (world, moved(world, 1), moved(world, 2))
    ]
    worker.configs.update({name: connect.config(world, name) for name in names})
    jobs = tmp_path / addresses.RUNNER_STATE_FILE
    jobs.write_text(json.dumps({job: {"config": connect.config(world, job)}}))
    addresses.update_connectors(worlds[0], print)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        if killed_at == 3:  # when all are updated and nothing says so
            patch.setattr(addresses, "_update_configs", kill_behind(addresses._update_configs))
        else:
            patch.setattr(connect_api, "call", killed_behind_puts(connect_api.call, killed_at))
        addresses.update_connectors(worlds[1], print)
    addresses.update_connectors(worlds[again], print)
    assert worker.configs == {name: connect.config(worlds[again], name) for name in names}
    assert json.loads(jobs.read_text()) == {job: {"config": connect.config(worlds[again], job)}}


class Killed(BaseException):
    pass


def kill_behind(function):
    """Return the same function, killed after it has done its work."""

    def killed(*args):
        function(*args)
        raise Killed

    return killed


def killed_behind_puts(real, count):
    """Return the same request function, killed after so many updates; with 0, after the first query."""
    calls = []

    def call(of, method, *rest):
        answer = real(of, method, *rest)
        calls.append(method)
        if calls.count("PUT") == count:
            raise Killed
        return answer

    return call


def before_a_put(real, error):
    """Return the same request function, which raises this error before it updates anything."""

    def call(of, method, *rest):
        if method == "PUT":
            raise error
        return real(of, method, *rest)

    return call


@pytest.mark.parametrize(
    "error", [Killed(), StackError("Connect is away")], ids=["killed", "raised"]
)
@pytest.mark.parametrize("last", range(4))
def test_updates_that_ended_early_twice_are_finished(world, worker, monkeypatch, last, error):
    """The first updated one connector, the second none.

    The third start knows what the first has done.
    """
    names, worlds = (
        ("moma_source", "movies_positions", "movies_source"),
        [moved(world, by) for by in range(4)],
    )
    worker.configs.update({name: connect.config(world, name) for name in names})
    addresses.update_connectors(worlds[0], print)
    real = connect_api.call
    for number, call in ((1, killed_behind_puts(real, 1)), (2, before_a_put(real, error))):
        with monkeypatch.context() as patch, pytest.raises(type(error) if number == 2 else Killed):
            patch.setattr(connect_api, "call", call)
            addresses.update_connectors(worlds[number], print)
    assert worker.configs["moma_source"] == connect.config(worlds[1], "moma_source")
    addresses.update_connectors(worlds[last], print)
    assert worker.configs == {name: connect.config(worlds[last], name) for name in names}
    worker.asked.clear()
    addresses.update_connectors(worlds[last], print)
    assert worker.asked == [], "nothing is unfinished any more"


def test_jobs_of_a_lake_that_is_not_on_this_machine_are_not_read(world, worker, monkeypatch):
    """S3 may not run yet when Connect starts.

    Reading took 90 s under the lock of the stack, and failed.
    """
    worlds = [
        with_settings(of, lake={"checkpoints": "s3a://lake/checkpoints"})
        for of in (world, moved(world, 1))
    ]
    worker.configs["moma_source"] = connect.config(world, "moma_source")

    def read_text(address):
        raise OSError(f"{address}: connection refused")

    monkeypatch.setattr(addresses.files, "read_text", read_text)
    for of in worlds:
        addresses.update_connectors(of, print)
    assert worker.configs == {"moma_source": connect.config(worlds[1], "moma_source")}


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_job_and_a_connector_of_one_name_have_their_own_configurations(
    world, worker, tmp_path, is_refused
):
    name = "pagila_poll"
    worlds = [
        with_settings(of, lake={"checkpoints": f"file:{tmp_path}"})
        for of in (world, moved(world, 1), moved(world, 2))
    ]
    worker.configs[name] = connect.config(world, "moma_source")
    file = tmp_path / addresses.RUNNER_STATE_FILE
    file.write_text(json.dumps({name: {"config": connect.config(world, name)}}))
    addresses.update_connectors(worlds[0], print)
    if is_refused:  # the connector keeps its addresses, the job does not
        worker.refused.add(name)
    for of in worlds[1:]:
        addresses.update_connectors(of, print)
        assert worker.configs == {
            name: connect.config(worlds[0] if is_refused else of, "moma_source")
        }
        assert json.loads(file.read_text()) == {name: {"config": connect.config(of, name)}}


def test_a_connector_that_is_deleted_while_connect_answers_is_none(world, monkeypatch):
    """Connect lists it without a configuration."""
    found = {"here": {"info": {"config": {"name": "here"}}}, "gone": {"info": None}}
    monkeypatch.setattr(connect_api, "call", lambda *_: found)
    assert addresses.connect_configs(world) == {"here": {"name": "here"}}
