"""Load the Spark settings in conf/."""

from pathlib import Path
from string import Template

from ..stack import artifacts

CONF_DIR = Path(__file__).parent / "conf"


def load_conf(name: str, **values: object) -> dict[str, str]:
    """Return the settings of conf/<name>.conf, a file in the format of spark-defaults.conf.

    Args:
        name: name of the file, without .conf.
        **values: values of the file's ${placeholders}; a placeholder without a value stays.
    """
    text = (CONF_DIR / f"{name}.conf").read_text(encoding="utf-8")
    settings = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            key, value = line.split(maxsplit=1)
            settings[key] = Template(value).safe_substitute(values)
    return settings


def session_conf() -> dict[str, str]:
    """Return the settings of every session, embedded or external."""
    conf = load_conf("session")
    conf["hoodie.write.table.version"] = str(artifacts.versions()["hudi_table_version"])
    return conf
