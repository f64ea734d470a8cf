"""The sections of a params file, as frozen models (see params.py)."""

import re
from typing import Annotated, Any, Literal, Optional

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from .secrets import Secret

MAX_INTERVAL_S = 86_400


def parse_digits(value: Any) -> Any:
    """Return the number of a text of digits: a parameter of AWS is a text."""
    return int(value) if isinstance(value, str) and re.fullmatch("[0-9]+", value) else value


def _require_reference(value: Any) -> Any:
    """Reject a password in a params file."""
    if not isinstance(value, Secret):
        raise ValueError(
            "a password is always a reference such as ${secret:postgres.admin}; "
            "`workbench secret NAME` stores a password of your own"
        )
    return value


Number = Annotated[int, BeforeValidator(parse_digits)]
Password = Annotated[Secret, BeforeValidator(_require_reference)]


class ConfigModel(BaseModel, frozen=True, extra="forbid", strict=True, allow_inf_nan=False):
    """A section of a world, strictly typed.

    Unknown keys, and numbers that are infinite or none, are rejected. A text field rejects 5432, and a
    bool field rejects 1.
    """


class Stack(ConfigModel):
    """The services: embedded or external."""

    # True: `stack` starts the services. False: `stack` only checks that they can be reached.
    embedded: bool
    # On AWS: the prefix of the names of stacks, parameters, secrets, connectors and tags; else "".
    deployment: str = Field(
        pattern=r"^([a-z][a-z0-9-]{1,19})?$", description="2 to 20 small letters, digits and -"
    )
    port_base: Number = Field(ge=1024, le=65500)


class Service(ConfigModel):
    """A service that an embedded stack can start."""

    # False: the user runs it. An embedded stack neither starts nor stops it.
    managed: bool = True


class Server(Service):
    """A database server, and a database on it."""

    engine: Literal["postgres", "mariadb", "mysql"]
    host: str
    port: Number
    database: str
    admin_user: str
    admin_password: Password
    replication_user: str  # the user of the connectors
    replication_password: Password
    # see Connect.password_reference, which the section `postgres` has instead
    password_reference: str = ""
    # "" lets the client choose. verify-full compares the host name with the certificate, which one
    # of ssl_ca (a PEM file) has signed, by default one of the system's.
    ssl: Literal["", "disable", "require", "verify-full"] = ""
    ssl_ca: str = ""


class PostgresServer(Server):
    """The PostgreSQL of a world."""

    engine: Literal["postgres"]


class MySqlServer(Server):
    """The MariaDB or MySQL of a world."""

    engine: Literal["mariadb", "mysql"]


class Source(Server):
    """A source database of the user; by default its user is that of the connectors, too."""

    admin_user: str = Field(validation_alias="user")
    admin_password: Password = Field(validation_alias="password")
    # True: on the server of the world, whose administrator `user` is. A capture grants what it needs.
    managed: bool = False

    @model_validator(mode="before")
    @classmethod
    def _complete_login(cls, keys: Any) -> Any:
        if not isinstance(keys, dict):
            return keys
        user, password = keys.get("user"), keys.get("password")
        return {"replication_user": user, "replication_password": password, **keys}


class Kafka(Service):
    """The Kafka cluster."""

    bootstrap: str
    # SASL_SSL: MSK with IAM authentication (see topic/kafka_iam.py)
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_SSL"]


class Connect(Service):
    """Kafka Connect (rest), or MSK Connect."""

    kind: Literal["rest", "msk"]
    url: str
    user: str  # of the REST API; "" if it requires no password
    password: Password
    topic_prefix: str
    # The reference to a secret in a connector configuration. Only the Connect worker resolves it.
    password_reference: str

    @property
    def auth(self) -> Optional[tuple[str, bytes]]:
        """User and password of the REST API, None if it requires none."""
        return (self.user, self.password.reveal().encode()) if self.user else None


class Registry(Service):
    """The schema registry."""

    kind: Literal["apicurio", "glue"]
    url: str
    wire: Literal["apicurio_legacy8", "glue"]  # see topic/wire.py


class Lake(ConfigModel):
    """The lake's endpoint and folders, as file:, s3a: or s3: URIs."""

    # URL of an S3 service other than AWS, such as http://127.0.0.1:9000; "" for AWS, and for a
    # folder.
    endpoint: str
    root: str  # everything lies below it
    landing: str  # raw files written by the sink
    tables: str  # Hudi tables
    dead_letters: str
    checkpoints: str


class Spark(Service):
    """Spark, and its size."""

    # connect: Spark Connect; classic: a session in this process, for `master`; emr_serverless: Spark
    # Connect on EMR Serverless.
    kind: Literal["connect", "classic", "emr_serverless"]
    url: str  # of Spark Connect, sc://…; on EMR Serverless the id of the application
    master: str  # local[2], local-cluster[2,1,1024], spark://…, yarn
    driver_memory: str
    executor_memory: str
    parallelism: int


class Query(ConfigModel):
    """The query engine."""

    kind: Literal["spark", "athena"]


# a warning (amber), and an alarm (red); strict mode would reject YAML's list
Limits = Annotated[tuple[float, float], Field(strict=False)]


class Watch(ConfigModel):
    """Thresholds of `workbench watch`: a warning (amber), then an alarm (red)."""

    # between two observations
    interval_s: float = Field(
        10.0, gt=0, le=MAX_INTERVAL_S, description="seconds, above 0 and up to a day"
    )
    freshness_s: Limits = (10.0, 60.0)  # p95 from commit to visible, of ten minutes
    unread_s: Limits = (10.0, 60.0)  # age of the oldest message that is not in the lake
    retained_mib: Limits = (256.0, 1024.0)  # log that a slot retains
    disk_free_mib: Limits = (2048.0, 512.0)
    stalled_s: float = 60.0  # slot whose position stands still while the log grows
    silent_s: float = 30.0  # source that changes, topic without messages
    small_files: int = 200  # base files below 1 MiB
    log_ratio: float = 1.0  # bytes of unmerged logs for each byte of base files
    # of notifications; "" for none. The password of the mail server is a secret.
    webhook: Optional[Password] = None  # the URL of a webhook is a credential
    sns_topic: str = ""
    mail_to: str = ""
    mail_server: str = ""  # host:port
    mail_user: str = ""
    mail_password: Optional[Password] = None


class Sections(ConfigModel):
    """The keys of a params file."""

    name: str
    description: str
    region: str
    stack: Stack
    postgres: PostgresServer
    mysql: MySqlServer  # MariaDB, or MySQL (Aurora), which has another Debezium plugin
    kafka: Kafka
    connect: Connect
    registry: Registry
    lake: Lake
    spark: Spark
    query: Query
    # {name: source}; the name is that of the source in commands and secrets
    sources: dict[str, Source] = Field(default_factory=dict)
    watch: Watch = Field(default_factory=Watch)
