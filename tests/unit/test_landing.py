"""The sink's JSON is understood whole or refused; what a landing writes is named and escaped as it
should be."""

import base64
import json
from types import SimpleNamespace

import landing_help
import pytest
from workbench import connect, landing
from workbench.base import files
from workbench.base.errors import ConnectorError, LakeError, StackError
from workbench.hudi import changes
from workbench.landing import job, messages
from workbench.landing.formats import JsonLines, RecordEncoder, to_json_line
from workbench.landing.sinks import LENSES, Sink, folder_by_fields
from workbench.tracks import frames, outbox

KCQL = (
    "insert into lake:cdc-events select * from msk.t PARTITIONBY customer_id,order_id STOREAS `json` "
    "WITH_FLUSH_INTERVAL = 60 WITH_FLUSH_COUNT = 50"
)
GOOD = {"connector.class": LENSES, "topics": "msk.t", "connect.s3.kcql": KCQL}


def test_the_statement_of_the_walkthrough():
    assert landing.parse(GOOD) == Sink(
        "json",
        "cdc-events",
        50,
        r"msk\.t",
        ("msk.t",),
        ("customer_id", "order_id"),
    )
    short = landing.parse(
        {**GOOD, "topics": "t", "connect.s3.kcql": "INSERT INTO b:p/q SELECT * FROM `t`"}
    )
    assert short == Sink("json", "p/q", 50_000, "t", ("t",))


@pytest.mark.parametrize(
    "change, says",
    [
        ({"schema.enable": "false"}, "value.converter.schemas.enable was meant"),
        ({"topics": "other"}, "topics is 'other'.*msk.t, which the KCQL reads"),
        ({"transforms": "x"}, "transforms is 'x'.*none with the Lenses sink"),
        ({"transforms.x.type": "y"}, "transforms.x.type belongs to no transform"),
        *[
            ({"connect.s3.kcql": kcql}, "connect.s3.kcql is .*INSERT INTO bucket:prefix SELECT")
            for kcql in (
                KCQL.replace("`json`", "`parquet`"),
                KCQL.replace("*", "order_id"),
                KCQL.replace("COUNT = 50", "COUNT = many"),
                KCQL.replace("= 60", "= 0"),
                KCQL.replace("= 60", "= -1"),
                KCQL.replace("FLUSH_COUNT", "FLUSH_SIZE"),
                KCQL + " LIMIT",
                KCQL + " WITH_FLUSH_COUNT = 500",
                KCQL + ";" + KCQL,
                "insert into lake select * from msk.t",
                "upsert " + KCQL,
                "",
            )
        ],
    ],
)
def test_what_cannot_be_honoured_is_refused(change, says):
    with pytest.raises(ConnectorError, match="(?s)" + says):
        landing.parse({**GOOD, **change})


@pytest.mark.parametrize(
    "value, folder",
    [
        ("RICSU", "a=RICSU"),
        ("a/b=c", "a=a%2Fb%3Dc"),
        (None, "a=__HIVE_DEFAULT_PARTITION__"),
        ("Genève", "a=Genève"),
        ("", "a=__HIVE_DEFAULT_PARTITION__"),
        (10248, "a=10248"),
        (True, "a=true"),
        ("..", "a=.."),
        ("\n", "a=%0A"),
        ("a\0b", "a=a%00b"),
    ],
)
def test_folders(value, folder):
    assert folder_by_fields(["a"], {"a": value}) == folder


@pytest.mark.parametrize(
    "text, line, reason",
    [
        ('{"a": 6.190000057220459}', '{"a": 6.190000057220459}', None),
        (
            '{"schema": {"x": "}"}, "payload": {"a": 12345678901234567890.123456789} }',
            '{"a": 12345678901234567890.123456789}',
            None,
        ),
        ('{"payload":{"a":1},"schema":null}', '{"a":1}', None),
        ('{"a":\n1}', '{"a":1}', None),
        ('{"schema":null,"payload":null}', "", None),
        ("{broken", "", "malformed JSON"),
        ("", "", "malformed JSON"),
        ('{"a": NaN}', "", "malformed JSON"),
        ("[1]", "", "not a JSON object"),
    ],
)
def test_the_envelope_comes_off_and_digits_stay(text, line, reason):
    converter = messages.JsonConverter(has_envelope=True)
    for _ in range(2):  # the second time its schema is known
        if reason:
            with pytest.raises(ValueError, match=reason):
                converter.read(text.encode())
        else:
            _, value, own = converter.read(text.encode())
            assert (to_json_line(value, own).decode() if value else "") == line


def by_c(most):
    return RecordEncoder(
        Sink("json", "f", most, "t", ("t",), ("c",)),
        messages.JsonConverter(has_envelope=True).read,
        JsonLines(),
    )


DEEP = b'{"c": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
POISON = [
    (json.dumps({"c": "\xe9" * 127}).encode(), "too long for"),
    (DEEP, "RecursionError"),
    (b'{"schema":' + DEEP + b',"payload":{}}', "RecursionError"),
    (b'{"c": "\\ud800"}', "surrogates not allowed"),
    (b'{"c": 1,\n"d": "\\ud800"}', "surrogates not allowed"),
    (b'{"c": "\xff"}', "not UTF-8"),
    (b"", "malformed JSON"),
    (b'{"c": "\xed\xa0\x80"}', "not UTF-8"),
    (b'"c"', "not a JSON object"),
]


def test_a_poison_message_goes_to_the_dead_letters_and_stops_nothing(tmp_path):
    values = [p for p, _ in POISON] + [b'{"c": 1, "d": "\\ud800"}']
    counts, letters = landing_help.write_files(by_c(50), tmp_path, landing_help.messages(*values))
    assert (counts["records"], counts["dead_letters"]) == (1, len(POISON))
    for number, (_, reason) in enumerate(POISON):
        assert (letters[number]["topic"], letters[number]["partition"]) == ("t", 0)
        assert reason in letters[number]["reason"]
    assert base64.b64decode(letters[5]["text"]) == POISON[5][0]


def test_a_row_of_255_bytes_of_folder_still_lands(tmp_path):
    assert (
        by_c(1).encode(landing_help.message(0, json.dumps({"c": "x" * 253}).encode())).folder
        == f"c={'x' * 253}"
    )
    files.write_bytes(
        files.open_filesystem(f"file:{tmp_path}")[0], f"{tmp_path}/{'t' * 250}.json", b"{}"
    )


def test_objects_hold_at_most_the_flush_count_and_are_written_the_same_again(tmp_path):
    found = landing_help.messages(
        *(json.dumps({"c": i % 2}).encode() for i in range(10)), None, None, b"{no"
    )
    found[11] = landing_help.message(11, None, key=None)
    counts, letters = landing_help.write_files(by_c(2), tmp_path, found)
    assert counts == {"messages": 13, "records": 10, "tombstones": 1, "dead_letters": 2}
    seen = {str(p.relative_to(tmp_path)): p.read_text() for p in tmp_path.rglob("*.json")}
    assert len(seen) == 6
    assert seen["c=0/t-0-00000000000000000004.json"] == '{"c": 0}\n{"c": 0}\n'
    assert {offset: letter["reason"] for offset, letter in letters.items()} == {
        11: "no value and no key",
        12: "malformed JSON",
    }
    landing_help.write_files(by_c(2), tmp_path, found)
    assert {
        str(p.relative_to(tmp_path)): p.read_text() for p in tmp_path.rglob("*") if p.is_file()
    } == seen


def test_landed_files_come_in_the_order_of_their_offsets_and_half_written_ones_not_at_all():
    mine = [
        "b=1/t-1-0-00000000000000000002.json",
        "a=1/t-1-0-00000000000000000010.json",
        "a=1/t-1-1-00000000000000000001.json",
    ]
    lenses = ["a=1/u(0_2).json", "a=1/u(0_10).json"]
    assert sorted(map(changes.parse_landed_file, lenses + mine[::-1])) == [
        *map(changes.parse_landed_file, mine + lenses)
    ]
    for path in (
        "/a=1/.t.json",
        "/a=1/_SUCCESS",
        "/_temporary/0/t.json",
        "/a=1/t.json.tmp",
        "/a=1/.t.json.crc",
    ):
        assert changes.is_hidden(path)
    assert not changes.is_hidden("/_a=1/t-0-00000000000000000002.json")


# --- one run
# ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path):
    lake = {name: f"file:{tmp_path}/{name}" for name in ("landing", "checkpoints", "dead_letters")}
    return SimpleNamespace(
        lake=SimpleNamespace(**lake),
        connect=SimpleNamespace(topic_prefix="My-msk"),
        kafka=SimpleNamespace(bootstrap="b", security_protocol="PLAINTEXT"),
    )


def test_a_second_landing_of_a_topic_is_refused_while_one_goes_on(world, tmp_path, monkeypatch):
    (tmp_path / "landing" / "cdc-events").mkdir(parents=True)
    monkeypatch.setattr(job, "require_topics", lambda world, sink: ["msk.t"])
    with job._landing_lock(world, landing.parse(GOOD), "msk.t"):
        for busy in (lambda: landing.run(world, GOOD), lambda: landing.drop(world, GOOD)):
            with pytest.raises(
                LakeError,
                match=r"(?s)another landing of msk.t.*process \d+ holds .*cdc-events.progress.json.lock",
            ):
                busy()
        assert (tmp_path / "landing" / "cdc-events").is_dir()
        other = {**GOOD, "connect.s3.kcql": KCQL.replace(":cdc-events", ":mine")}
        landing.drop(world, other)  # another folder is another landing
    landing.drop(world, GOOD)
    assert not (tmp_path / "landing" / "cdc-events").exists()


@pytest.mark.parametrize("error", [None, StackError("it has members")])
def test_a_drop_deletes_the_group_of_a_connector_of_the_same_name(
    world, tmp_path, monkeypatch, caplog, error
):
    """The connector would continue where the group ends, and skip what was removed."""
    deleted, folder = [], tmp_path / "landing" / "cdc-events"
    folder.mkdir(parents=True)

    def delete(world, group):
        deleted.append((group, folder.exists()))
        if error:
            raise error

    monkeypatch.setattr(job.groups, "delete", delete)
    landing.drop(world, {**GOOD, "name": "mine"})
    assert deleted == [("connect-mine", True)] and not folder.exists()
    assert ("connect-mine stays: it has members" in caplog.text) == bool(error)


def test_a_drop_takes_the_progress_first_and_the_id_of_the_topic_last(world, tmp_path, monkeypatch):
    path = job.progress_path(world, "cdc-events")
    files.write_text(path, json.dumps({"topic_id": "id", "offsets": {"0": 7}, "planned": {}}))
    removed = []

    def remove(uri):
        removed.append((uri, files.read_text(path)))

    monkeypatch.setattr(files, "remove", remove)
    landing.drop(world, GOOD)
    assert removed == [
        (f"file:{tmp_path}/{place}", json.dumps({"topic_id": "id", "offsets": {}, "planned": {}}))
        for place in (
            "landing/cdc-events",
            "dead_letters/landing/cdc-events",
            "checkpoints/landing/cdc-events.progress.json",
        )
    ]


# --- what the outbox walkthrough reads of it
# -------------------------------------------------------------------------


def land(world, name, *lines):
    files.write_text(f"{world.lake.landing}/cdc-events/a=1/{name}", "\n".join(lines))


def test_landed_lines_end_at_a_line_feed_only_and_come_in_the_order_of_the_log(world):
    # JSON holds these as they are; str.splitlines() would end a line at each
    text = "x\u2028y\u2029\x85z"
    land(
        world,
        "t-0-1.json",
        json.dumps({"__lsn": 2, "a": text}, ensure_ascii=False),
        '{"__lsn": 3}',
        "",
    )
    land(world, "t-0-0.json", '{"__lsn": 1}')  # a writer that ends the file without a line feed
    land(world, "t-0-9.json", "")
    assert sorted(frames.landed_files(f"{world.lake.landing}/cdc-events")["records"]) == [0, 1, 2]
    rows = frames.landed_rows(f"{world.lake.landing}/cdc-events")
    assert list(rows["__lsn"]) == [1, 2, 3] and rows["a"][1] == text


def test_a_line_that_is_not_json_is_named_by_its_file(world):
    land(world, "broken.json", '{"__lsn": 1}', '{"order_id": 10248, ', "")
    with pytest.raises(LakeError, match=r"(?s)not JSON.*/a=1/broken.json"):
        frames.landed_rows(f"{world.lake.landing}/cdc-events")


def test_a_folder_in_which_nothing_has_landed_yet_is_named(world):
    with pytest.raises(LakeError, match="(?s)nothing landed yet.*cdc-events.*land the topic"):
        frames.landed_rows(f"{world.lake.landing}/cdc-events")


def test_what_is_left_of_the_walkthrough_is_not_what_others_have(world, monkeypatch):
    monkeypatch.setattr(
        connect,
        "names",
        lambda _: ["moma_source", outbox.ENVELOPE_CONNECTOR, "somebody_elses"],
    )
    assert outbox.TRACK.resources.deployed_connectors(world) == [outbox.ENVELOPE_CONNECTOR]


def test_parquet_files_are_told_by_name_and_footer(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    for topic, offset, n, codec in (
        ("t", 300, 2, "gzip"),
        ("t", 0, 300, "gzip"),
        ("t", 302, 1, "snappy"),
    ):
        (tmp_path / "partition=0").mkdir(exist_ok=True)
        path = tmp_path / "partition=0" / f"{topic}+0+{offset:010}.{codec}.parquet"
        parquet.write_table(pa.table({"n": range(n)}), path, compression=codec)
    seen = frames.parquet_files(f"file:{tmp_path}")
    assert list(seen["folder"].unique()) == [f"file:{tmp_path}/partition=0"]
    assert list(seen[["offset", "records", "codec"]].itertuples(index=False, name=None)) == [
        (0, 300, "GZIP"),
        (300, 2, "GZIP"),
        (302, 1, "SNAPPY"),
    ]
    there = sorted((tmp_path / "partition=0").iterdir())
    assert list(seen["bytes"]) == [path.stat().st_size for path in there]
    assert [round(at.timestamp(), 3) for at in seen["written"]] == [
        round(path.stat().st_mtime, 3) for path in there
    ]
    assert frames.parquet_files(f"file:{tmp_path}/none").empty
