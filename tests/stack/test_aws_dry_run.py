"""A dry run of each walkthrough in world `aws`: its notebooks, unchanged, against AWS on this
machine (aws_double.py).

What AWS is asked for, in order, stands in aws_calls/: reviewed text, that a change of the code
changes. Lines of params/aws.yaml that differ are of what no embedded service speaks: Kafka without
IAM, Apicurio for the Glue registry. Aurora MySQL is the embedded MariaDB, and Debezium's connector
for MySQL that for it.
"""

import contextlib
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable, NamedTuple

import aws_double
import boto3
import pytest
import requests
import worlds
import yaml
from moto.server import ThreadedMotoServer
from workbench import connect, stack
from workbench.base import params, paths, secrets, tls
from workbench.connect.configs import MYSQL_CONNECTORS
from workbench.query import dialect, spark_sql
from workbench.source import mariadb, postgres
from workbench.spark import session
from workbench.stack.services import S3_KEY, S3_KEY_ID

pytestmark = pytest.mark.aws

CALLS = Path(__file__).parent / "aws_calls"
REGION, ACCOUNT, BUCKET = "ap-southeast-2", "123456789012", "workbench-lake"
# seconds for one notebook: the folders by order are a thousand writes to an S3 of this machine's
MOST = 1800
ELSE = {
    "security_protocol: SASL_SSL": "security_protocol: PLAINTEXT",
    "kind: glue": "kind: apicurio",
    "wire: glue": "wire: apicurio_legacy8",
}
DATABASES = (
    "datalake pagila_kafka_connect pagila_polled moma_cow moma_mor moma_scratch sampledatabase"
).split()
CONNECTORS = """
    outbox_source outbox_source_envelope moma_source moma_source_envelope pagila_source pagila_source_envelope
    pagila_polled_log movies_source movies_positions
    """.split()


@pytest.fixture(scope="module")
def near(world):
    """World s3, whose services stand behind the double's answers."""
    loaded = params.load("s3")
    with worlds.activated(loaded):
        stack.up(loaded, ["postgres", "mariadb", "kafka", "connect", "apicurio", "s3", "spark"])
        yield loaded
        remove_all(world, loaded)


def remove_all(world, loaded):
    # The tests after this one expect no connectors, no slots, no databases in S3, and their world's Spark.
    try:
        for name in connect.names(loaded):
            connect.delete(loaded, name)
        slots = "SELECT slot_name, database FROM pg_replication_slots WHERE database IS NOT NULL"
        listed = postgres.query(loaded, slots, database="postgres")
        for slot, database in listed.itertuples(index=False):
            postgres.drop_slot(loaded, slot, database)
        for database in DATABASES:
            session(loaded).sql(f"DROP DATABASE IF EXISTS {database} CASCADE")
    finally:
        stack.ensure_running(world, "spark")


def deployed(near, at):
    """What `deploy/up.sh` leaves of a deployment, as far as a walkthrough asks for it."""

    def client(service):
        return boto3.client(
            service,
            region_name=REGION,
            endpoint_url=near.lake.endpoint if service == "s3" else at,
            aws_access_key_id=S3_KEY_ID,
            aws_secret_access_key=secrets.read()[S3_KEY],
        )

    pg, my = near.postgres, near.mysql
    arn, roles = f"{REGION}:{ACCOUNT}", f"arn:aws:iam::{ACCOUNT}:role/workbench"
    given = yaml.safe_load(f"""
        postgres/host: {pg.host}
        postgres/port: "{pg.port}"
        mysql/host: {my.host}
        mysql/port: "{my.port}"
        kafka/bootstrap: {near.kafka.bootstrap}
        kafka/cluster: arn:aws:kafka:{arn}:cluster/workbench/0a1b2c3d-0000-0000-0000-000000000000-1
        connect/subnets: subnet-1,subnet-2
        connect/security_groups: sg-1
        connect/log_group: /workbench/connect
        connect/worker_configuration: arn:aws:kafkaconnect:{arn}:worker-configuration/workbench/0a1b2c3d-0000-0000-0000-000000000001
        lake/bucket: {BUCKET}
        query/workgroup: workbench
        spark/application: 00f1r4c2hs0mq01p
        spark/role: {roles}-spark
        """)
    given |= {f"connect/role/{name}": f"{roles}-connect-{name}" for name in CONNECTORS}
    for name, value in given.items():
        client("ssm").put_parameter(
            Name=f"/workbench/{name}", Value=value, Type="String", Overwrite=True
        )
    for database in ("postgres", "mysql"):
        mine = secrets.read()[f"{database}.replication"]
        for name, password in (("admin", "made-for-the-dry-run"), ("replication", mine)):
            client("secretsmanager").create_secret(
                Name=f"workbench/{database}.{name}", SecretString=json.dumps({"password": password})
            )
    with contextlib.suppress(
        client("s3").exceptions.BucketAlreadyOwnedByYou
    ):  # of the track before
        client("s3").create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
        )
    for database in DATABASES:
        session(near).sql(f"CREATE DATABASE IF NOT EXISTS {database}")
    client("athena").create_work_group(
        Name="workbench",
        Configuration={"ResultConfiguration": {"OutputLocation": f"s3://{BUCKET}/athena/"}},
    )
    postgres.execute(
        near,
        "DO $$BEGIN CREATE ROLE devuser SUPERUSER LOGIN PASSWORD 'made-for-the-dry-run'; "
        "EXCEPTION WHEN duplicate_object THEN END$$",
        database="postgres",
    )
    mariadb.execute(
        near, "CREATE USER IF NOT EXISTS master@'%' IDENTIFIED BY 'made-for-the-dry-run'"
    )
    mariadb.execute(near, "GRANT ALL ON *.* TO master@'%' WITH GRANT OPTION")


def asked(near, text):
    """A query of Athena's, asked of Spark."""
    tree, create = dialect.parse_statement(text)
    own = spark_sql._ansi_session(session(near))
    rows = own.sql(spark_sql._to_spark_sql(own, tree, {}))
    if create:
        spark_sql._write_table(rows, create)
    return None if create else rows


def last_record(tmp_path):
    return max((tmp_path / "runs").glob("*/run.json"), key=lambda path: path.stat().st_mtime)


class Cloud(NamedTuple):
    """World `aws`.

    Attributes:
        run: runs notebooks, and returns the calls of AWS since its start.
        command: runs a command of the workbench, and returns the completed process.
    """

    run: Callable
    command: Callable


@pytest.fixture
def cloud(near, tmp_path):
    """World `aws` on this machine."""
    root = tmp_path / "root"
    root.mkdir()
    for name in ("notebooks", "data", "docs", "deploy"):
        (root / name).symlink_to(paths.ROOT / name)
    shutil.copytree(paths.ROOT / "params", root / "params")
    text = (root / "params" / "aws.yaml").read_text()
    for theirs, ours in ELSE.items():
        assert text.count(theirs) == 1
        text = text.replace(theirs, ours)
    assert text.count('  url: ""\n  wire') == 1
    text = text.replace('  url: ""\n  wire', f"  url: {near.registry.url}\n  wire")
    (root / "params" / "aws.yaml").write_text(text)
    # the registry is another instance's: a client trusts the certificate of its own one
    state = root / "var/instances/dry-run"
    shutil.copytree(paths.state_dir() / "tls", state / "tls")
    (state / "port_base").write_text(str(paths.stored_port_base()))
    known = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    known.start()
    moto = "http://{}:{}".format(*known.get_host_and_port())
    requests.post(f"{moto}/moto-api/reset", timeout=60)  # all servers of a process have one memory
    for name in connect.names(
        near
    ):  # of the test before: this AWS has no connectors and no offsets yet
        connect.delete(near, name)
    deployed(near, moto)
    pair = tuple(map(str, tls.certificate_files()))  # for localhost, too
    spark_tls = aws_double.TlsProxy(pair, params.split_host_port(near.spark.url))

    def rest(method, path, body):
        answer = requests.request(
            method, near.connect.url + path, json=body, timeout=60, auth=near.connect.auth
        )
        assert answer.ok or answer.status_code == 404, f"{method} {path}: {answer.text}"
        return None if answer.status_code == 404 else answer.json() if answer.content else {}

    embedded = {  # a MariaDB in the place of MySQL, with Debezium's connector for it
        "${secretsmanager:workbench/postgres.replication:password}": near.connect.password_reference,
        "${secretsmanager:workbench/mysql.replication:password}": near.mysql.password_reference,
        MYSQL_CONNECTORS["mysql"]: MYSQL_CONNECTORS["mariadb"],
    }
    answers = {
        **aws_double.msk_connect(
            rest,
            REGION,
            ACCOUNT,
            embedded,
            ["workbench-debezium-postgres", "workbench-debezium-mysql"],
        ),
        **aws_double.emr_serverless(f"https://localhost:{spark_tls.port}", "emr-7.13.0"),
        **aws_double.athena(lambda text: asked(near, text), BUCKET),
    }
    double = aws_double.Double(moto, answers)

    def command(*arguments):
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "WORKBENCH_SECRET_"))
        }
        environment.update(
            AWS_ACCESS_KEY_ID=S3_KEY_ID,
            AWS_SECRET_ACCESS_KEY=secrets.read()[S3_KEY],
            AWS_ENDPOINT_URL=double.url,
            AWS_ENDPOINT_URL_S3=near.lake.endpoint,
            AWS_ALLOW_HTTP="true",
            GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=pair[0],
            WORKBENCH_ROOT=str(root),
            WORKBENCH_RUNS=str(tmp_path / "runs"),
            WORKBENCH_INSTANCE="dry-run",
            LOGNAME="analyst",
        )  # what a session is called by
        environment.pop("WORKBENCH_PORT_BASE")
        return subprocess.run(
            [sys.executable, "-m", "workbench.cli", *arguments, "--world", "aws"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=4 * MOST,
        )

    def run(*targets):
        done = command("run", *targets, "--timeout", str(MOST))
        found = json.loads(last_record(tmp_path).read_text())
        failed = [(n["path"], n["error"]) for n in found["notebooks"] if n["status"] != "passed"]
        assert done.returncode == 0 and not failed, (
            f"{failed}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
        return double.calls

    yield Cloud(run, command)
    double.close()
    spark_tls.close()
    known.stop()


def same_calls(name, calls):
    """Compare with aws_calls/<name>.txt; what was asked for is written beside it where it
    differs."""
    file, told = CALLS / f"{name}.txt", aws_double.recording(calls)
    if not file.exists() or file.read_text() != told:
        new = paths.VAR_DIR / f"{name}.txt"
        new.write_text(told)
        lines = difflib.unified_diff(
            file.read_text().splitlines() if file.exists() else [],
            told.splitlines(),
            "reviewed",
            "asked for",
            lineterm="",
        )
        pytest.fail(
            f"other calls than {file.name} has; if they are right: cp {new} {file}\n"
            + "\n".join(lines)[:6000]
        )


@pytest.mark.drill
@pytest.mark.parametrize(
    "track",
    [
        "10_outbox",
        "20_query_based_cdc",
        "30_log_based_cdc",
        "40_schema_evolution",
        "50_time_travel",
        "60_streaming_sales",
    ],
)
def test_the_calls_of_a_walkthrough(cloud, track):
    calls = cloud.run(track)
    assert not [
        v
        for _, _, given in calls
        for v in given.values()
        if re.search("made-for-the-dry-run", str(v))
    ]
    same_calls(track, calls)


@pytest.mark.drill
def test_watch_observes_each_part_of_a_flow(cloud):
    """Source, topic, registry and MSK Connect are asked, the timeline is read from S3."""
    cloud.run("11_source_database", "12_connectors", "13_hudi_ingest")
    done = cloud.command("watch", "10_outbox", "--once", "--json")
    (seen,) = json.loads(done.stdout)
    assert not [p for p in seen["problems"] if p["level"] == "red"], seen["problems"]
    # the table is ingested from landed files, whose messages are not counted
    assert seen["dead_letters"] == {"cdc_events": 0} and seen["files"] > 0, seen
    assert {*seen["states"].values()} == {"RUNNING"} and seen["retained"], seen
