"""What Spark is told, wherever it runs: the files of conf/."""

from pathlib import Path
from string import Template

from ..stack import artifacts

CONF_DIR = Path(__file__).parent / "conf"


def load_conf(name: str, until: str = "", **values: object) -> dict[str, str]:
    """The settings in a file of conf/, in Spark's own form; until: of the part before this line
    only. values: what its ${placeholders} stand for.
    """
    text = (CONF_DIR / f"{name}.conf").read_text(encoding="utf-8")
    lines = (text.partition(until)[0] if until else text).splitlines()
    settings = dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {key: Template(value).safe_substitute(values) for key, value in settings.items()}


def hudi_conf() -> dict[str, str]:
    """Return what a Spark must be started with for Hudi: the first paragraph of settings of the
    embedded one.
    """
    return load_conf("spark-defaults", until="# everything on loopback")


def session_conf() -> dict[str, str]:
    """Return what Spark is asked for every session, of whatever server it is."""
    return {
        **load_conf("session"),
        "hoodie.write.table.version": str(artifacts.versions()["hudi_table_version"]),
    }
