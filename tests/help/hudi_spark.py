"""Small Hudi tables, written and read by a Spark of its own with a given bundle of Hudi.

A test starts this as a process, because a Java has one Hudi only (`run`). It has the settings of the workbench's own
Spark, and each table the options of the library.
"""

import json
import os
import subprocess
import sys
from unittest import mock

from py4j.protocol import Py4JJavaError
from workbench import hudi
from workbench.base import params
from workbench.hudi import loading
from workbench.spark import server, settings
from workbench.stack import artifacts, services

KEY_OPTIONS = ("new.encoding", "validation.enable")
COLUMNS = "id int, a string, b string, text string, v bigint"
# {name: fields of the table}. Two partition fields, or two key fields, make Hudi's complex key generator.
KINDS = {
    "nonpartitioned": {"index": "SIMPLE"},
    "buckets": {"index": "BUCKET", "type": "mor"},
    "one_partition": {"partition": ("a",), "type": "mor"},
    "two_partitions": {"partition": ("a", "b")},
    "two_partitions_mor": {"partition": ("a", "b"), "type": "mor"},
    "two_keys": {"key": ("id", "a"), "partition": ("a", "b")},
}


def make_table(folder, kind, name):
    fields = {"key": ("id",), "index": "GLOBAL_SIMPLE", **KINDS[kind]}
    return hudi.Table(name, f"file:{folder}/{name}", ordering="v", **fields)


def run(jar, folder, steps):
    """Execute steps in a new process, and return their results.

    Args:
        jar: the bundle of Hudi.
        folder: a folder for the tables.
        steps: lists of the name of a function below, and its arguments after the session and the folder.
    """
    script, output = [sys.executable, __file__], folder / "results.json"
    arguments = [str(jar), str(folder), json.dumps(steps), str(output)]
    subprocess.run([*script, *arguments], check=True, timeout=900)
    return json.loads(output.read_text(encoding="utf-8"))


def start(jar):
    """Return a classic session whose Hudi is this bundle."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
    os.environ.update(JAVA_HOME=str(artifacts.java_home()), SPARK_LOCAL_IP="127.0.0.1")
    world = params.load("local")
    # the archive of classes is for the pinned bundle
    with mock.patch("workbench.stack.cds.options", lambda *_: []):
        conf = server.server_conf(world.spark, world.lake.tables)
    (pinned,) = [path for path in artifacts.jars("spark") if path.name.startswith("hudi-")]
    class_path = conf["spark.driver.extraClassPath"]
    assert str(pinned) in class_path
    conf |= {
        "spark.driver.extraClassPath": class_path.replace(str(pinned), jar),
        "spark.executor.extraClassPath": class_path.replace(str(pinned), jar),
        "spark.driver.extraJavaOptions": " ".join(
            [*services.JAVA_OPTIONS, *services.java_logging_options("hudi-next", "error")]
        ),
        "spark.sql.catalogImplementation": "in-memory",
    }
    at_start = [item for item in conf.items() if item[0] not in settings.session_conf()]
    spark = SparkSession.builder.config(conf=SparkConf().setAll(at_start)).getOrCreate()
    for name, value in settings.session_conf().items():
        spark.conf.set(name, value)
    return spark


def bundle(spark, folder):
    """Return the name of the file that this Spark has Hudi from."""
    name = "org.apache.hudi.common.table.HoodieTableConfig"
    domain = spark._jvm.java.lang.Class.forName(name).getProtectionDomain()
    return domain.getCodeSource().getLocation().getPath().rpartition("/")[2]


def write(spark, folder, kind, name, ids, v, leave_out=()):
    """Write rows, as an ingest writes its first or a later commit; return the error, if there is one.

    Args:
        kind: a key of KINDS.
        name: name of the table.
        ids: first id, and the one behind the last.
        v: version of the rows, by which they are ordered.
        leave_out: the KEY_OPTIONS that are not set.
    """
    table = make_table(folder, kind, name)
    options = table.options()
    if not hudi.commits(table).size:
        options |= loading.bulk_insert_options(ids[1] - ids[0])
    for option in leave_out:
        del options[f"hoodie.write.complex.keygen.{option}"]
    rows = [(id, f"a{id % 2}", "b", f"{id} in {v}", v) for id in range(*ids)]
    frame = spark.createDataFrame(rows, COLUMNS)
    try:
        frame.write.format("hudi").options(**options).mode("append").save(table.base)
    except Py4JJavaError as e:  # the test reads it
        return str(e)
    return ""


def read(spark, folder, kind, name):
    """Return [id, text, key as Hudi stores it] of each row."""
    rows = hudi.read(spark, make_table(folder, kind, name)).collect()
    return sorted([row.id, row.text, row["_hoodie_record_key"]] for row in rows)


def compact(spark, folder, kind, name):
    hudi.compact(spark, make_table(folder, kind, name))


def main(jar, folder, steps, output):
    spark = start(jar)
    results = [globals()[step](spark, folder, *arguments) for step, *arguments in json.loads(steps)]
    with open(output, "w", encoding="utf-8") as file:
        json.dump(results, file)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
