"""The published configurations against ours: what differs stands in one table, and nothing else
does."""

import csv
import json
import re
from fnmatch import fnmatch

import on_aws
import pytest
from workbench import connect
from workbench.base import params, paths
from workbench.base.errors import CheckFailed
from workbench.checks import published
from workbench.tracks import log_based, movies, museum, outbox, query_based

REFERENCE = paths.ROOT / "data" / "reference"
NAMES = sorted(f"{p.parent.name}/{p.stem}" for p in REFERENCE.glob("*/*.json"))


def ours(world):
    """The configurations that are the same in every run; what is submitted is known in the
    notebooks only."""
    mor = {name: museum.flow.table(world, name, "mor").options() for name in museum.flow.names}
    return {
        "S1/source_connector": connect.config(world, outbox.CONNECTOR),
        "S1/sink_connector": connect.config(world, outbox.SINK),
        "S2/properties": outbox.flow.table(world).options(),
        "S4/source_connector": connect.config(world, movies.CONNECTOR),
        "S4/sink_connector": connect.config(world, movies.SINK),
        "S5/source_connector": connect.config(world, museum.CONNECTOR),
        "S5/sink_connector": connect.config(world, museum.SINK),
        "S7/source_connector": connect.config(world, log_based.CONNECTOR),
        "S7/sink_connector": connect.config(world, log_based.SINK),
        **{
            f"S3/{kind}_connector_0{n}": connect.config(world, name)
            for n, pair in enumerate(query_based.PAIRS)
            for kind, name in zip(("source", "sink"), pair)
        },
        **{f"S5/properties_{name}": options for name, options in mor.items()},
    }


def known():
    with open(REFERENCE / "differences.csv", encoding="utf-8", newline="") as rows:
        return list(csv.DictReader(rows))


@pytest.mark.parametrize("name", ["local", "cluster", "aws"])
def test_what_differs_stands_in_the_table(name):
    world = on_aws.world() if name == "aws" else params.load(name)
    for part, config in ours(world).items():
        table = published.compare(world, part, config)
        assert len(table) and table["reason"].all()
        assert not {"database.hostname", "database.user", "database.password"} & set(table["key"])


@pytest.mark.parametrize(
    "change, says",
    [
        ({"poll.interval.ms": "49"}, "key='poll.interval.ms', here: here '49', table '50'"),
        ({"plugin.name": "decoderbufs"}, "key='plugin.name': not in table"),
        ({"plugin.name": ""}, "key='plugin.name': not in table"),
        ({"max.batch.size": "1"}, "key='max.batch.size': not in table"),
        ({"database.server.name": "msk"}, "key='database.server.name': missing in here"),
        ({"heartbeat.interval.ms": ""}, "key='heartbeat.interval.ms': missing in here"),
    ],
)
def test_a_difference_that_is_not_in_the_table_is_red_and_so_is_one_that_is_gone(change, says):
    world = params.load("local")
    with pytest.raises(CheckFailed, match=re.escape(says)):
        published.compare(
            world, "S1/source_connector", {**connect.config(world, outbox.CONNECTOR), **change}
        )


@pytest.mark.parametrize(
    "change, says",
    [
        ({"value.converter.compatibility": "BACKWARD"}, "here 'BACKWARD', table 'NONE'"),
        (
            {"key.converter.registry.name": "workbench-values"},
            "here 'workbench-values', table 'workbench-keys'",
        ),
        (
            {"value.converter.avroRecordType": ""},
            "key='value.converter.avroRecordType': missing in here",
        ),
        (
            {"value.converter": "org.apache.kafka.connect.json.JsonConverter"},
            "key='value.converter', here",
        ),
        ({"key.converter.apicurio.registry.find-latest": "true"}, "find-latest': missing in here"),
        (
            {"value.converter.compression": "ZLIB"},
            "key='value.converter.compression': not in table",
        ),
    ],
)
def test_so_it_is_where_the_registry_is_glues(change, says):
    world = on_aws.world()
    with pytest.raises(CheckFailed, match=re.escape(says)):
        published.compare(
            world, "S5/source_connector", {**connect.config(world, museum.CONNECTOR), **change}
        )


def test_a_line_of_the_table_is_held_against_what_is_published(tmp_path, monkeypatch):
    """Not only against ours: the table quotes both."""
    world = params.load("local")
    theirs = json.loads((REFERENCE / "S1" / "sink_connector.json").read_text(encoding="utf-8"))
    (tmp_path / "S1").mkdir()
    (tmp_path / "S1" / "sink_connector.json").write_text(
        json.dumps({**theirs, "schema.enable": "true"})
    )
    (tmp_path / "differences.csv").write_text(
        (REFERENCE / "differences.csv").read_text(encoding="utf-8")
    )
    monkeypatch.setattr(published, "REFERENCE_DIR", tmp_path)
    with pytest.raises(CheckFailed, match="key='schema.enable', published"):
        published.compare(world, "S1/sink_connector", connect.config(world, outbox.SINK))


# Our files, each with the published one that it follows: what is no walkthrough's own follows that
# of its kind. Of Kafka's sink to a file none is published
FOLLOWS = {
    outbox.CONNECTOR: "S1/source_connector",
    outbox.ENVELOPE_CONNECTOR: "S1/source_connector",
    outbox.SINK: "S1/sink_connector",
    movies.CONNECTOR: "S4/source_connector",
    movies.POSITIONS_CONNECTOR: "S4/source_connector",
    movies.SINK: "S4/sink_connector",
    museum.CONNECTOR: "S5/source_connector",
    museum.ENVELOPE_CONNECTOR: "S5/source_connector",
    museum.SINK: "S5/sink_connector",
    log_based.CONNECTOR: "S7/source_connector",
    log_based.ENVELOPE_CONNECTOR: "S7/source_connector",
    log_based.SINK: "S7/sink_connector",
    query_based.LOG_CONNECTOR: "S7/source_connector",
    log_based.POLLING_CONNECTOR: "S3/source_connector_00",
    **{
        name: f"S3/{kind}_connector_0{n}"
        for n, pair in enumerate(query_based.PAIRS)
        for kind, name in zip(("source", "sink"), pair)
    },
}


@pytest.mark.parametrize(
    "name",
    sorted({file.stem for file in connect.CONNECTORS_DIR.glob("*.json")} - {movies.FILE_SINK}),
)
def test_a_placeholder_stands_only_where_the_published_one_has_it_or_the_table_says_why(name):
    ours = json.loads((connect.CONNECTORS_DIR / f"{name}.json").read_text(encoding="utf-8"))
    theirs = json.loads((REFERENCE / f"{FOLLOWS[name]}.json").read_text(encoding="utf-8"))
    for row in known():
        if fnmatch(FOLLOWS[name], f"{row['walkthrough']}/{row['part'].partition('@')[0]}"):
            theirs[row["key"]] = theirs.get(row["key"], "") + row["here"]
    placeholder = re.compile(r"\$\{\w+\}")
    for key, value in ours.items():
        assert set(placeholder.findall(value)) <= set(placeholder.findall(theirs.get(key, ""))), key


def test_an_unknown_configuration_is_named():
    with pytest.raises(FileNotFoundError, match="S1/sink_conector.json"):
        published.compare(params.load("local"), "S1/sink_conector", {})


def test_the_table_holds_differences_with_reasons_of_configurations_that_are_there():
    rows = known()
    assert all(row["published"] != row["here"] and row["reason"] for row in rows)
    assert len({(row["walkthrough"], row["part"], row["key"], row["here"]) for row in rows}) == len(
        rows
    )
    parts = [row["part"].partition("@") for row in rows]
    assert {where for _, _, where in parts} == {"", "apicurio", "glue", "SASL_SSL"}
    of = [
        {name for name in NAMES if fnmatch(name, f"{row['walkthrough']}/{part}")}
        for row, (part, *_) in zip(rows, parts)
    ]
    assert all(of), "a line is of no published configuration"


@pytest.mark.parametrize("name", NAMES)
def test_a_published_configuration_is_flat_holds_no_placeholder_of_its_authors_and_is_compared(
    name,
):
    values = json.loads((REFERENCE / f"{name}.json").read_text(encoding="utf-8"))
    assert all(isinstance(value, str) and not re.search("[<>]", value) for value in values.values())
    stem = re.sub("_(artists|artworks)$", "", name)
    texts = [p.read_text(encoding="utf-8") for p in (paths.ROOT / "notebooks").rglob("*.ipynb")]
    assert any(stem in text and "published.compare(" in text for text in texts), (
        "no notebook compares it"
    )
