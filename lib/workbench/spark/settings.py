"""What Spark is told, wherever it runs."""
from __future__ import annotations

from pathlib import Path

from ..stack import artifacts

DEFAULTS = Path(__file__).parent / "conf" / "spark-defaults.conf"


def hudi_needs() -> dict[str, str]:
    """Return what a Spark must be started with for Hudi: the first paragraph of settings of the embedded one."""
    needed = DEFAULTS.read_text(encoding="utf-8").partition("# everything on loopback")[0]
    lines = (line.split() for line in needed.splitlines() if line.startswith("spark."))
    return dict(lines)


def of_session() -> dict[str, str]:
    """Return what Spark is asked for every session, of whatever server it is."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "hoodie.write.table.version": str(artifacts.versions()["hudi_table_version"]),
        "hoodie.write.auto.upgrade": "false",
        "hoodie.enable.data.skipping": "false",
        "hoodie.metadata.enable": "false",
        # One calendar for all time. Spark's default refuses days before 1582 (and times before 1900), and Hudi's writer
        # of rows takes the refusal of a row for a row less: seen with 1.0.2, the commit says totalWriteErrors 1 and is
        # done.
        **{f"spark.sql.{kind}RebaseModeIn{way}": "CORRECTED" for way in ("Read", "Write")
           for kind in ("parquet.datetime", "parquet.int96", "avro.datetime")},
    }
