"""A Java process with Kafka Connect's classes, to compare ours with them.

The jars are those of the embedded Connect.
"""

import contextlib
import os

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from workbench.stack import artifacts


@contextlib.contextmanager
def kafka_connect_jvm():
    artifacts.install()
    jars = [str(jar) for jar in artifacts.jars("kafka")]
    py4j = next((artifacts.package_dir("pyspark") / "jars").glob("py4j-*.jar"))
    with open(os.devnull, "w") as nowhere:
        port = launch_gateway(
            jarpath=str(py4j),
            classpath=":".join(jars),
            die_on_exit=True,
            javaopts=["-Xmx128m"],
            java_path=str(artifacts.java_home() / "bin" / "java"),
            redirect_stderr=nowhere,
        )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    yield gateway.jvm
    gateway.shutdown()


def json_converter(jvm, is_key):
    """Return a JsonConverter with schemas."""
    config = jvm.java.util.HashMap()
    config["schemas.enable"] = "true"
    made = jvm.org.apache.kafka.connect.json.JsonConverter()
    made.configure(config, is_key)
    return made
