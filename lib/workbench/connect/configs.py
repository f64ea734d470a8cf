"""Configurations of connectors: the JSON in params/connectors, the same for a Kafka Connect and for
MSK Connect, with its ${placeholders} filled; and what must not stand in one: secrets, and keys that
nobody knows.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, Iterable
from urllib.parse import urlsplit

import yaml

from ..base import ROOT, ConnectorError, World, aws, did_you_mean, local_path, state_dir
from ..base.errors import URI_LOGIN
from ..source import postgres
from ..stack.services import AVRO_CONVERTER, REGISTRY_V2, glue_registries

CONNECTORS_DIR = ROOT / "params" / "connectors"
CONNECTOR_CATALOG = yaml.safe_load(
    Path(__file__).with_name("known.yaml").read_text(encoding="utf-8")
)
MYSQL_CONNECTORS = CONNECTOR_CATALOG["mysql_connectors"]  # {mysql.kind of a world: connector class}
SCHEMA_HISTORY_PREFIX = "schema.history.internal"
SECRET_KEYS = re.compile(
    r"password|passphrase|secret|credential|jaas|user\.info|keystore\.key$|private.?key|api.?key|"
    r"(^|[._-])token$",
    re.I,
)
# Looked for in what a value holds beside references. An address with a login (errors.URI_LOGIN);
# a key and its value, as in JDBC, JAAS and JSON: password=…, clientSecret="…", "password": "…"; not
# token_id=…
SECRET_PAIR = re.compile(
    r"(?<![^?&;,:\s\"'{(])[\w.-]*(password|passwd|passphrase|pwd|secret|secret.?(access.?)?key|token|credentials?)"
    r"(\s*=(?!=)|[\"']\s*:)\s*([\"'][^\"']|[^\"'\s&;,)])",
    re.I,
)
SECRET_TEXT = re.compile(
    r"\bbearer\s+\w|\bauthorization\s*:\s*basic\s+\w|-----BEGIN [A-Z ]*PRIVATE KEY", re.I
)
SQL_QUERY = re.compile(
    r"\s*(select\s.*\sfrom|with\s.*\sas\s*\()", re.I | re.S
)  # where password = … compares columns
SQL_STRING = re.compile(
    r"'((?:[^']|'')*)'"
)  # a constant in it, such as the login that dblink is given
PLACEHOLDER = re.compile(r"\$\{([^}:]*)\}")
REFERENCE = re.compile(r"\$\{[^${}:]+:[^{}]+\}")  # KIP-297: ${provider:path:key}


def config(world: World, name: str, **more: Any) -> dict[str, str]:
    """Return the connector configuration params/connectors/<name>.json with its ${placeholders}
    filled from `world`. Below embedded/ are those that no deployment on AWS has.

    The file names Apicurio's converter for Avro. Where the world's registry is Glue's, its
    converter and settings take the place of Apicurio's, and nothing else differs
    (deploy/connectors.md shows it).

    Args:
        more: values for placeholders that the world does not know, or in place of the world's.

    Raises:
        ConnectorError: no such file; not a flat JSON object, or one with a key given twice; a
            placeholder nobody fills; an argument nobody uses.
    """
    shown, files = (
        f"params/connectors/{name}.json",
        {p.stem: p for p in CONNECTORS_DIR.rglob("*.json")},
    )
    if name not in files:
        raise ConnectorError(
            f"there is no connector configuration {name!r}",
            location=shown,
            expected=did_you_mean(name, files),
        )
    try:
        raw = json.loads(
            files[name].read_text(encoding="utf-8"),
            object_pairs_hook=lambda pairs: _reject_duplicate_keys(pairs, shown),
        )
    except ValueError as e:
        raise ConnectorError(f"not JSON: {e}", location=shown) from e
    if not isinstance(raw, dict) or not all(isinstance(v, str) for v in raw.values()):
        raise ConnectorError(
            "a connector configuration is one flat object of texts",
            location=shown,
            expected='every value in quotes, such as "tasks.max": "1"',
        )
    values = {**placeholders(world), **{k: str(v) for k, v in more.items()}}
    used = {
        placeholder: key for key, value in raw.items() for placeholder in PLACEHOLDER.findall(value)
    }
    for unknown in sorted(used.keys() - values.keys()):
        raise ConnectorError(
            f"unknown placeholder ${{{unknown}}}",
            location=f"{shown}: {used[unknown]}",
            expected=did_you_mean(unknown, values),
            hint=f"correct it, or give it a value: connect.config(world, {name!r}, …=…)",
        )
    for unused in sorted(more.keys() - used.keys()):
        raise ConnectorError(
            f"{shown} has no placeholder ${{{unused}}}",
            location=shown,
            expected=did_you_mean(unused, used),
        )
    # one pass, so that a filled-in ${directory:…} is left for the Connect worker to resolve
    filled = {key: PLACEHOLDER.sub(lambda m: values[m[1]], value) for key, value in raw.items()}
    filled |= _schema_history_login(world, filled)
    return _use_glue_converter(world, filled) if world.registry.kind == "glue" else filled


def _schema_history_login(world: World, config: dict[str, str]) -> dict[str, str]:
    """How Debezium's own clients of Kafka, which keep what it knows of MySQL's tables, log in where
    IAM is asked for ("Debezium source connector with configuration provider" of Amazon's developer
    guide); elsewhere nothing.
    """
    if (
        world.kafka.security_protocol != "SASL_SSL"
        or f"{SCHEMA_HISTORY_PREFIX}.kafka.topic" not in config
    ):
        return {}
    login = {"security.protocol": world.kafka.security_protocol, **aws.KAFKA_IAM_PROPERTIES}
    return {
        f"{SCHEMA_HISTORY_PREFIX}.{side}.{key}": value
        for side in ("consumer", "producer")
        for key, value in login.items()
    }


def _use_glue_converter(world: World, config: dict[str, str]) -> dict[str, str]:
    """Return a configuration with Glue's converter for Avro where it has Apicurio's (the settings
    are of the README of aws-glue-schema-registry).
    """
    registries, changed = glue_registries(world), {}
    for key, value in config.items():
        side, converter, rest = key.partition(".converter")
        if side not in registries or config.get(side + converter) != AVRO_CONVERTER:
            changed[key] = value
        elif not rest:
            told = {**_render("glue_converter", world), ".registry.name": registries[side]}
            changed.update({key + setting: text for setting, text in told.items()})
    return changed


def _reject_duplicate_keys(pairs: list[tuple[str, Any]], shown: str) -> dict[str, Any]:
    """Return what `dict` would, but refuse a key that is given twice: JSON takes the last, and says
    nothing.
    """
    for key, times in Counter(key for key, _ in pairs).items():
        if times > 1:
            raise ConnectorError(
                f"key {key!r} is given twice", location=shown, hint="remove one of the two"
            )
    return dict(pairs)


def placeholders(world: World) -> dict[str, str]:
    """Return what `world` fills into connector configurations. No secret is among it, only a
    reference to one.
    """
    region, lake = world.region, urlsplit(world.lake.landing)
    return {
        **_render("placeholders", world),
        "slot_prefix": postgres.slot_prefix(world).removesuffix("_"),
        "mysql_connector": MYSQL_CONNECTORS[world.mysql.kind],
        "registry_url": world.registry.url + REGISTRY_V2 if world.registry.url else "",
        "region": region or "local",
        "s3_endpoint": f"https://s3.{region}.amazonaws.com/" if region else "",
        # where the lake is a folder there is no bucket; its landing folder takes that place
        "bucket": lake.netloc if lake.scheme.startswith("s3") else "landing",
        "landing_folder": str(
            local_path(world.lake.landing) or state_dir()
        ),  # for the embedded Connect
    }


def _render(part: str, world: World) -> dict[str, str]:
    """A part of known.yaml, in which {world.…} stands for what the world says."""
    return {name: text.format(world=world) for name, text in CONNECTOR_CATALOG[part].items()}


def _is_secret_reference(key: str, value: str) -> bool:
    """Whether a secret is named instead of written out; a JAAS line holds a reference among other
    words, or says nothing but who logs in.
    """
    if "jaas" in key.lower():
        return bool(REFERENCE.search(value)) or "=" not in value
    return bool(REFERENCE.fullmatch(value))


def plaintext_secret_keys(config: dict[str, str]) -> list[str]:
    """Return the keys whose values hold a secret as plain text: as a whole, or inside an address or
    a list.
    """
    whole = [
        k
        for k, v in config.items()
        if SECRET_KEYS.search(k) and v and not _is_secret_reference(k, v)
    ]
    beside = {k: REFERENCE.sub("", v) for k, v in config.items()}
    return sorted({*whole, *(k for k, v in beside.items() if _holds_secret(v))})


def _holds_secret(value: str) -> bool:
    """Return whether a part of a value is a secret; of SQL only its constants can hold a key and
    its value.
    """
    constants = (
        [text.replace("''", "'") for text in SQL_STRING.findall(value)]
        if SQL_QUERY.match(value)
        else [value]
    )
    return bool(URI_LOGIN.search(value) or SECRET_TEXT.search(value)) or any(
        map(SECRET_PAIR.search, constants)
    )


def unknown_keys(config: dict[str, str], known: Iterable[str]) -> dict[str, str]:
    """Return the keys that are neither `known` nor accepted by pattern, each with what is nearest
    to it: to its new name if it was renamed.
    """
    found = {}
    for key in config:
        if key not in known and not re.fullmatch("|".join(CONNECTOR_CATALOG["dynamic_keys"]), key):
            now = next(
                (
                    key.replace(old, new)
                    for old, new in CONNECTOR_CATALOG["renamed"].items()
                    if key.endswith(old)
                ),
                key,
            )
            found[key] = did_you_mean(now, known)
    return found


def known_keys(config: dict[str, str]) -> set[str]:
    """Return the keys that the plugin of a configuration, and its transforms, have, as
    params/connectors/keys has them of some classes (a test compares them with the plugins
    themselves); none where the plugin's are not there.
    """

    def keys(of: str) -> list[str]:
        file = CONNECTORS_DIR / "keys" / f"{of}.txt"
        return file.read_text(encoding="utf-8").split() if file.is_file() else []

    found = set(keys(config.get("connector.class", "")))
    for name in filter(None, re.split(r"[\s,]+", config.get("transforms", ""))) if found else ():
        start = f"transforms.{name}."
        own = keys(config.get(f"{start}type", ""))
        found |= (
            {start + key for key in own}
            if own
            else {key for key in config if key.startswith(start)}
        )
    return found | {
        key for key in config if found and re.match(r"(key|value|header)\.converter\.", key)
    }
