"""Paths from JSON, KCQL, topic names and arguments stay below the folder they are joined to."""

import pytest
from workbench import connect, hudi, landing
from workbench.base import params, paths
from workbench.base.errors import ConnectorError, LakeError, WorkbenchError
from workbench.hudi import changes
from workbench.hudi.tables import dead_letters_path, table_state_dir
from workbench.topic import dlq
from worlds import with_settings

FIELD_PARTITIONER = "io.confluent.connect.storage.partitioner.FieldPartitioner"
OUTSIDE = (
    "..",
    ".",
    "",
    "/",
    "../victim",
    "a/../../victim",
    "a/./b",
    "a//b",
    "/etc",
    "a/..",
    "a\0b",
    "a\nb",
)
LENSES = {
    "connector.class": "io.lenses.streamreactor.connect.aws.s3.sink.S3SinkConnector",
    "topics": "t",
}


@pytest.fixture
def lake(tmp_path):
    """A world whose lake lies in a folder of its own, and a folder beside the lake that nothing may
    touch."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "rows.csv").write_text("1")
    world = params.load("local")
    roots = {
        name: f"file:{tmp_path}/lake/{name}"
        for name in ("landing", "checkpoints", "dead_letters", "tables")
    }
    yield with_settings(world, lake=roots)
    assert (tmp_path / "victim" / "rows.csv").read_text() == "1"
    assert not [path for path in tmp_path.iterdir() if path.name not in ("lake", "victim")]


@pytest.mark.parametrize("path", OUTSIDE)
def test_what_leads_outside_is_refused(path):
    for root in ("file:/lake/landing", "s3a://bucket/landing"):
        with pytest.raises(LakeError, match="is not a path below"):
            paths.join_uri(root, path)


def test_what_stays_below_is_joined():
    assert (
        paths.join_uri("s3a://bucket/landing/", "a/b=..x/..c.json")
        == "s3a://bucket/landing/a/b=..x/..c.json"
    )


@pytest.mark.parametrize(
    "prefix", ["../../../victim", "..", ".", "/", "/etc", "a/../../victim", "a//b"]
)
def test_a_prefix_of_a_lenses_sink(lake, prefix):
    sink = {**LENSES, "connect.s3.kcql": f"INSERT INTO landing:{prefix} SELECT * FROM t"}
    for use in (
        landing.parse,
        lambda config: landing.drop(lake, config),
    ):
        with pytest.raises(
            ConnectorError, match="(?s)connect.s3.kcql is .*a prefix below the landing"
        ):
            use(sink)


def test_a_prefix_may_end_with_a_slash():
    assert (
        landing.parse({**LENSES, "connect.s3.kcql": "INSERT INTO b:a/b/ SELECT * FROM t"}).folder
        == "a/b"
    )


@pytest.mark.parametrize(
    "change, says",
    [
        ({"topics": "..", "topics.regex": None}, "topics is '..'"),
        ({"topics": "a,../b", "topics.regex": None}, "topics is"),
        ({"topics.dir": "a/../../b"}, "topics.dir is"),
        ({"topics.dir": ".."}, "topics.dir is"),
        (
            {"partition.field.name": "../../x", "partitioner.class": FIELD_PARTITIONER},
            "partition.field.name is '../../x'",
        ),
    ],
)
def test_settings_of_a_confluent_sink(lake, change, says):
    config = {**connect.config(lake, "moma_sink"), **change}
    config = {key: value for key, value in config.items() if value is not None}
    with pytest.raises(ConnectorError, match="(?s)" + says):
        landing.parse(config)
    with pytest.raises(ConnectorError, match="(?s)" + says):
        landing.drop(lake, config)


@pytest.mark.parametrize("regex", [".", ".."])
def test_a_pattern_is_no_folder(lake, regex):
    sink = landing.parse({**connect.config(lake, "moma_sink"), "topics.regex": regex})
    assert sink.state_path == f"{sink.folder}.sink/_"


@pytest.mark.parametrize("path", ["..", "../../victim", "a/../../victim"])
def test_paths_that_are_arguments(lake, path):
    for use in (
        lambda: dlq.replay(lake, f"{path}/x"),
        lambda: hudi.table(lake, path, key=("id",), ordering="v"),
        lambda: hudi.table(lake, "t", database=path, key=("id",), ordering="v"),
        lambda: table_state_dir(lake, hudi.Table("t", f"{lake.lake.tables}/{path}", ("id",), "v")),
        lambda: dead_letters_path(
            lake, hudi.Table("t", f"{lake.lake.tables}/{path}", ("id",), "v")
        ),
        lambda: changes.decode.reader_schema(f"{path}/x"),
        lambda: changes.create_reader(
            None, lake, hudi.Landed(path), hudi.Table("t", "file:/none", ("id",), "v"), 1, "schema"
        ).next({}),
    ):
        with pytest.raises(WorkbenchError, match="is not a path below"):
            use()
