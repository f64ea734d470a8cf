"""Connector configurations: read the JSON files in params/connectors, and find errors in them.

Kafka Connect and MSK Connect use the same files. The world has the values of their ${placeholders}.
A configuration must not contain plaintext secrets, nor keys that its plugin does not know.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, Collection
from urllib.parse import urlencode, urlsplit

from ..base import (
    ROOT,
    ConnectorError,
    World,
    did_you_mean,
    local_path,
    secrets,
    state_dir,
    yaml_files,
)
from ..base.errors import URI_LOGIN
from ..base.paths import display_path
from ..base.registries import AVRO_CONVERTER, REGISTRY_V2, glue_registries
from ..source import postgres

CONNECTORS_DIR = ROOT / "params" / "connectors"
CONNECTOR_CATALOG = yaml_files.load(Path(__file__).with_name("catalog.yaml"))
# {engine of a world's mysql: connector class}
MYSQL_CONNECTORS = CONNECTOR_CATALOG["mysql_connectors"]
SCHEMA_HISTORY_TOPIC = "schema.history.internal.kafka.topic"
SECRET_KEYS = re.compile(
    r"password|passphrase|secret|credential|jaas|user\.info|keystore\.key$|private.?key|api.?key|"
    r"(^|[._-])token$",
    re.I,
)
# A secret as a key-value pair in a value, as in JDBC URLs, JAAS, JSON and SQL: password=…,
# clientSecret="…", "password": "…", 'password=''…'''; but not token_id=…
SECRET_PAIR = re.compile(
    r"(?<![^?&;,:\s\"'{(])[\w.-]*(password|passwd|passphrase|pwd|secret|secret.?(access.?)?key|token|credentials?)"
    r"(\s*=(?!=)|[\"']\s*:)\s*([\"'][^\"']|''\w|[^\"'\s&;,)])",
    re.I,
)
# A secret in an HTTP header or in PEM format. errors.URI_LOGIN matches a URI with a login.
SECRET_TEXT = re.compile(
    r"\bbearer\s+\w|\bauthorization\s*:\s*basic\s+\w|-----BEGIN [A-Z ]*PRIVATE KEY", re.I
)
PLACEHOLDER = re.compile(r"\$\{([^}:]*)\}")  # ${name}
REFERENCE = re.compile(r"\$\{[^${}:]+:[^{}]+\}")  # KIP-297: ${provider:path:key}
SECRET_PATTERNS = (URI_LOGIN, SECRET_PAIR, SECRET_TEXT)
WORKER_REFERENCE = re.compile(r"\$\{[^}]*:[^}]*\}")  # what the worker takes for one
LOGIN_KEYS = ("database.password", "connection.password")


def config(world: World, name: str, **values: Any) -> dict[str, str]:
    """Return a connector configuration, with a value for each ${placeholder}.

    The files name Apicurio's converter for Avro. If the world's registry is Glue, Glue's converter
    with its settings replaces it (deploy/connectors.md shows an example).

    Args:
        world: the world that fills the placeholders.
        name: name of the file params/connectors/<name>.json. Connectors in its subfolder embedded/
            are not deployed on AWS.
        **values: values of further placeholders, or values that replace those of the world.

    Raises:
        ConnectorError: the file does not exist, is not a flat JSON object, or has a duplicate key;
            a placeholder has no value; or the file has no placeholder for one of `values`.
    """
    files = {path.stem: path for path in CONNECTORS_DIR.rglob("*.json")}
    file = f"params/connectors/{name}.json"
    if name not in files:
        raise ConnectorError(
            f"there is no connector configuration {name!r}",
            location=file,
            expected=did_you_mean(name, files),
        )
    return fill(world, read(files[name]), file, **values)


def fill(
    world: World, raw: dict[str, str], file: str, is_draft: bool = False, /, **values: Any
) -> dict[str, str]:
    """Return a connector configuration with a value for each ${placeholder}, as `config` does.

    Args:
        world: the world that fills the placeholders.
        raw: the content of the file (see `read`).
        file: the file, for errors.
        is_draft: accept a configuration that lacks a keystore, which the user adds later.
        **values: values of further placeholders, or values that replace those of the world.

    Raises:
        ConnectorError: a placeholder has no value, or there is none for one of `values`.
    """
    available = {**placeholders(world), **{key: str(value) for key, value in values.items()}}
    used = {
        placeholder: key for key, text in raw.items() for placeholder in PLACEHOLDER.findall(text)
    }
    for unknown in sorted(used.keys() - available.keys()):
        raise ConnectorError(
            f"unknown placeholder ${{{unknown}}}",
            location=f"{file}: {used[unknown]}",
            expected=did_you_mean(unknown, available),
            hint=f"correct it, or set its value: connect.config(world, …, {unknown}=…)",
        )
    for unused in sorted(values.keys() - used.keys()):
        raise ConnectorError(
            f"{file} has no placeholder ${{{unused}}}",
            location=file,
            expected=did_you_mean(unused, used),
        )
    # One pass only: a value such as ${directory:…} stays, because the Connect worker resolves it.
    filled = {key: PLACEHOLDER.sub(lambda m: available[m[1]], text) for key, text in raw.items()}
    if world.kafka.security_protocol == "SASL_SSL" and SCHEMA_HISTORY_TOPIC in filled:
        filled |= CONNECTOR_CATALOG["schema_history_login"]
    filled = {**_tls_login(world, filled, file, is_draft), **filled}
    url, options = filled.get("connection.url", ""), urlencode(_postgres_tls(world))
    if url.startswith("jdbc:postgresql:") and "?" not in url and options:
        filled["connection.url"] = f"{url}?{options}"
    return _replace_avro_converter(world, filled) if world.registry.kind == "glue" else filled


def read(path: Path) -> dict[str, str]:
    """Return the content of a connector's JSON file, with its placeholders.

    Raises:
        ConnectorError: the file is not a flat JSON object of strings, has a duplicate key, or cannot be read.
    """
    file = display_path(path)

    def reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # json.loads would silently keep the last of several values
        for key, count in Counter(key for key, _ in pairs).items():
            if count > 1:
                raise ConnectorError(
                    f"key {key!r} occurs twice", location=file, hint="remove one of the two"
                )
        return dict(pairs)

    try:
        text = path.read_text(encoding="utf-8")  # UnicodeDecodeError is a ValueError
        raw = json.loads(text, object_pairs_hook=reject_duplicate_keys)
    except (ValueError, OSError) as e:
        raise ConnectorError(f"the file is not JSON: {e}", location=file) from e
    if not isinstance(raw, dict) or not all(isinstance(value, str) for value in raw.values()):
        raise ConnectorError(
            "a connector configuration is a flat JSON object of strings",
            location=file,
            expected='every value in quotes, such as "tasks.max": "1"',
        )
    return raw


def _postgres_tls(world: World) -> dict[str, str]:
    """Return the TLS options of PostgreSQL's JDBC driver; without ssl_ca it uses Java's certificates."""
    server = world.postgres
    if server.ssl != "verify-full":
        return {"sslmode": server.ssl} if server.ssl else {}
    if server.ssl_ca:
        return {"sslmode": server.ssl, "sslrootcert": server.ssl_ca}
    return {"sslmode": server.ssl, "sslfactory": "org.postgresql.ssl.DefaultJavaSSLFactory"}


def _tls_login(world: World, config: dict[str, str], file: str, is_draft: bool) -> dict[str, str]:
    """Return the TLS settings of a Debezium connector for the world's server, without the keys that it has.

    Raises:
        ConnectorError: the server's certificate is to be checked with a PEM file, which Debezium's
            client of MariaDB and MySQL cannot read.
    """
    kind = (
        config.get("connector.class", "").removeprefix("io.debezium.connector.").partition(".")[0]
    )
    if kind == "postgresql":
        return {f"database.{key}": value for key, value in _postgres_tls(world).items()}
    mode = CONNECTOR_CATALOG["tls_modes"].get(kind, {}).get(world.mysql.ssl)
    if not mode:
        return {}
    truststore, ca = "database.ssl.truststore", world.mysql.ssl_ca
    if world.mysql.ssl == "verify-full" and ca and not (is_draft or truststore in config):
        raise ConnectorError(
            "Debezium cannot read ssl_ca: for MariaDB and MySQL it needs a Java keystore, not a PEM file",
            location=f"{file}: ssl verify-full, ssl_ca {ca}",
            expected=f"{truststore} in the connector's JSON",
            hint="keytool -importcert -noprompt -file <ssl_ca> -keystore <file> -storepass <password>; "
            f"then {truststore} and {truststore}.password (a reference)",
        )
    return {"database.ssl.mode": mode}


def _replace_avro_converter(world: World, config: dict[str, str]) -> dict[str, str]:
    """Return a configuration with Glue's Avro converter instead of Apicurio's.

    The README of aws-glue-schema-registry documents its settings.
    """
    registries = glue_registries(world)
    result = {}
    for key, value in config.items():
        side, converter, setting = key.partition(".converter")
        if side not in registries or config.get(side + converter) != AVRO_CONVERTER:
            result[key] = value
        elif not setting:
            for name, text in _render("glue_converter", world).items():
                result[key + name] = text
            result[f"{key}.registry.name"] = registries[side]
    return result


def placeholders(world: World) -> dict[str, str]:
    """Return {placeholder: value} of a world for connector configurations.

    The values contain references to secrets, and no secrets.
    """
    region, lake = world.region, urlsplit(world.lake.landing)
    return {
        **_render("placeholders", world),
        "slot_prefix": postgres.slot_prefix(world).removesuffix("_"),
        "mysql_connector": MYSQL_CONNECTORS[world.mysql.engine],
        "registry_url": world.registry.url + REGISTRY_V2 if world.registry.url else "",
        "region": region or "local",
        "s3_endpoint": f"https://s3.{region}.amazonaws.com/" if region else "",
        # a lake in local files has no bucket; its landing folder is used as the bucket
        "bucket": lake.netloc if lake.scheme.startswith("s3") else "landing",
        # only for the embedded Kafka Connect
        "landing_folder": str(local_path(world.lake.landing) or state_dir()),
    }


def _render(section: str, world: World) -> dict[str, str]:
    """Return a section of catalog.yaml, with the world's values for its {world.…} fields."""
    return {name: text.format(world=world) for name, text in CONNECTOR_CATALOG[section].items()}


def _is_secret_reference(key: str, value: str) -> bool:
    """Return whether the value of a secret key is a reference, not plain text.

    A JAAS line is accepted if it contains a reference anywhere, or has no option at all.
    """
    if "jaas" in key.lower():
        return bool(REFERENCE.search(value)) or "=" not in value
    return bool(REFERENCE.fullmatch(value))


def plaintext_secret_keys(config: dict[str, str]) -> list[str]:
    """Return the keys whose values contain a secret as plain text.

    The secret may be the whole value, or part of a URI or a list.
    """
    return sorted(
        key
        for key, value in config.items()
        if (SECRET_KEYS.search(key) and value and not _is_secret_reference(key, value))
        or any(pattern.search(REFERENCE.sub("", value)) for pattern in SECRET_PATTERNS)
    )


def misplaced_references(
    config: dict[str, str], own: str, secret_names: Collection[str]
) -> list[str]:
    """Return the keys with a reference to a secret that is not for them.

    Args:
        config: the configuration.
        own: the reference to the password of the connector's user.
        secret_names: the secrets of the params file, which only their servers may see.
    """
    keys = []
    for key, value in config.items():
        references = WORKER_REFERENCE.findall(value)
        is_login = key in LOGIN_KEYS
        if references and (
            not SECRET_KEYS.search(key)
            or (is_login and value != own)
            or not all(text == own or _is_free(text, own, secret_names) for text in references)
        ):
            keys.append(key)
    return keys


def _is_free(reference: str, own: str, secret_names: Collection[str]) -> bool:
    """Return whether a reference is to a secret of this instance that belongs to no server."""
    if own.startswith("${secretsmanager:"):
        names = re.split("[:/}]", reference)
        return reference.startswith("${secretsmanager:") and not {*names} & {*secret_names}
    folder, _, name = reference.removesuffix("}").rpartition(":")
    is_here = folder == f"${{directory:{secrets.secrets_dir()}"
    return is_here and bool(secrets.SECRET_NAME.fullmatch(name)) and name not in secret_names


def unknown_keys(config: dict[str, str], valid_keys: Collection[str]) -> dict[str, list[str]]:
    """Find keys that are neither valid nor match an accepted pattern of the catalog.

    Args:
        config: the configuration.
        valid_keys: keys that the plugin defines.

    Returns:
        {unknown key: messages}. For a key that Debezium has renamed a message suggests the new name.
    """
    accepted = "|".join(CONNECTOR_CATALOG["accepted_key_patterns"])
    unknown = {}
    for key in config:
        if key not in valid_keys and not re.fullmatch(accepted, key):
            new_key = key
            for old, new in CONNECTOR_CATALOG["renamed_keys"].items():
                new_key = re.sub(f"{re.escape(old)}$", new, new_key)
            suggestion = did_you_mean(new_key, valid_keys)
            message = f"the plugin has no such key and would ignore it; {suggestion}"
            unknown[key] = [message.rstrip("; ")]
    return unknown
