"""A web page whose name resolves to 127.0.0.1 gets nothing from any listener of any world, nor from
the lab."""

import contextlib
import os
import re
import shutil
import sys
from pathlib import Path

import instance
import psutil
import pytest
import requests
import web_page
from storefront import audit, client, load, setup
from workbench import connect, stack
from workbench.base import files, params, paths, secrets
from workbench.base.wait import wait_until
from workbench.source import postgres
from workbench.spark import session
from workbench.stack import artifacts, services
from workbench.topic import registry, topics
from worlds import no_world, with_settings

pytestmark = pytest.mark.drill


@pytest.fixture(params=["local", "cluster", "s3"])
def busy(request):
    """A world in an instance of its own, all of its services at work."""
    with pytest.MonkeyPatch.context() as patch, no_world():
        patch.setenv("WORKBENCH_INSTANCE", "test-listeners")
        patch.setenv("WORKBENCH_PORT_BASE", str(int(os.environ["WORKBENCH_PORT_BASE"]) + 120))
        stack.down()
        shutil.rmtree(paths.state_dir(), ignore_errors=True)
        instance.stop_with_process(os.getpid(), remove=True)
        world = params.load(request.param)
        artifacts.install(print, *services.optional_artifacts(world))
        params.activate(world)
        try:
            stack.up(world)
            stack.ensure_running(world, *services.ON_DEMAND_SERVICES)
            setup.restart_clean(world)
            setup.up(world, count=2)
            client.call(
                world,
                "accounts",
                "POST",
                "customers",
                {**load.sample_documents()["customer"], "id": "1"},
            )
            postgres.execute(world, "CREATE TABLE canary (n int PRIMARY KEY)", database="postgres")
            admin = f"${{directory:{secrets.secrets_dir()}:postgres.admin}}"
            connect.apply(
                with_settings(world, connect={"password_reference": admin}),
                "canary",
                {
                    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                    "tasks.max": "1",
                    "plugin.name": "pgoutput",
                    "topic.prefix": "canary",
                    "database.hostname": world.postgres.host,
                    "database.port": str(world.postgres.port),
                    "database.dbname": "postgres",
                    "slot.name": "canary",
                    "database.user": world.postgres.admin_user,
                    "table.include.list": "public.canary",
                    "database.password": admin,
                },
            )
            connect.wait_running(world, "canary")
            registry.register(world, "canary-value", "string")
            files.write_text(f"{world.lake.root}/canary.txt", "of the lake")
            spark = session(world)
            assert spark.range(4).mapInPandas(lambda frames: frames, "id long").count() == 4
            yield world
        finally:
            stack.down()
            shutil.rmtree(paths.state_dir(), ignore_errors=True)


def content(world):
    """What a page could change: connectors and their states, topics, schemas, customers, files of
    the lake."""
    names = connect.names(world)
    found = [connect.status(world, name) for name in names]
    return {
        "connectors": [
            [one["name"], one["state"], [task["state"] for task in one["tasks"]]] for one in found
        ],
        "configurations": {
            name: connect.rest.KafkaConnect(world).call("GET", f"/connectors/{name}/config")
            for name in names
        },
        "topics": sorted(topics.names(world)),
        "schemas": sorted(registry.artifacts(world)["artifact"]),
        "customers": sorted(audit.owner_documents(world, "customers")["id"]),
        "lake": sorted(one.path for one in files.list_dir(world.lake.root)),
        "running": stack.running(),
    }


def test_a_web_page_of_another_name_gets_nothing_from_any_listener(busy):
    before = content(busy)
    processes = {p.pid: p for p, _ in instance.find_service_processes(f"{paths.state_dir()}:")}
    for name in before["running"]:  # PostgreSQL's backends lose their mark
        leader = stack.process.running_process(name)
        processes.update({p.pid: p for p in [leader, *leader.children(recursive=True)]})
    spoken, faults = web_page.check_listeners(
        processes.values(), [*secrets.read().values(), str(paths.state_dir())]
    )
    print(spoken)
    ports = {port for name in before["running"] for port in services.SERVICES[name].ports(busy)}
    assert ports - spoken.keys() == set(), "the look missed a service"
    assert {s.port for s in stack.status(busy)} <= ports
    assert faults == {}
    assert content(busy) == before


def test_the_lab_and_its_kernels(tmp_path):
    """JupyterLab checks the host, and wants its token; a kernel takes only what is signed with its
    key."""
    log = tmp_path / "log"
    port = int(os.environ["WORKBENCH_PORT_BASE"]) + 199
    with log.open("wb") as out:
        lab = psutil.Popen(
            [Path(sys.executable).with_name("workbench"), "lab", "--no-browser"],
            stdout=out,
            stderr=out,
            env={**os.environ, "JUPYTER_PORT": str(port), "JUPYTER_RUNTIME_DIR": str(tmp_path)},
        )
    try:
        token = wait_until(
            lambda: re.search(rf"http://127.0.0.1:{port}/\S*token=(\w+)", log.read_text()),
            "the lab",
            timeout=120,
            failure_reason=lambda: None if lab.is_running() else log.read_text(),
        )[1]
        kernels = f"http://127.0.0.1:{port}/api/kernels"
        login = {"Authorization": f"token {token}"}
        kernel = requests.post(kernels, headers=login, timeout=60).json()
        wait_until(
            lambda: len(web_page.listening_sockets(lab.children(recursive=True))) >= 5,
            "the kernel",
            timeout=60,
        )
        spoken, faults = web_page.check_listeners([lab, *lab.children(recursive=True)], [token])
        assert spoken.pop(port) == "HTTP" and set(spoken.values()) == {"ZeroMQ"}
        assert faults == {}
        assert [k["id"] for k in requests.get(kernels, headers=login, timeout=60).json()] == [
            kernel["id"]
        ]
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            for p in [*lab.children(recursive=True), lab]:
                p.kill()
