"""Tests of a recapture.

The configuration of the new connector, rejected requests, a repeated call, and the result.
"""

import json
from types import SimpleNamespace
from unittest.mock import MagicMock

import pandas as pd
import pytest
from pyspark.sql import types as T
from workbench import connect, hudi, recapture
from workbench.base import ConnectorError, files, params
from workbench.base.errors import LakeError
from workbench.hudi import ingesting, rewriting
from workbench.hudi.ingesting import PROGRESS_KEY, REPLACED_BY
from workbench.hudi.timeline import completed_actions
from workbench.source.databases import PostgreSQL
from worlds import with_settings

POSTGRES = {
    "name": "shop",
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "topic.prefix": "shop",
    "slot.name": "local_shop",
    "publication.name": "shop",
    "table.include.list": "public.a,public.b",
    "snapshot.mode": "no_data",
}
MARIADB = {
    "topic.prefix": "db1",
    "database.server.id": "42",
    "table.include.list": r"shop\..*",
    "schema.history.internal.kafka.topic": "dbhistory.demo1",
}


def test_a_new_connector_of_postgresql():
    new = recapture.renamed_config(POSTGRES, "_r2", ["public.b"])
    assert {key: value for key, value in new.items() if POSTGRES.get(key) != value} == {
        "topic.prefix": "shop_r2",
        "slot.name": "local_shop_r2",
        "table.include.list": "public.b",
        "snapshot.mode": "initial",
    }
    assert POSTGRES.keys() - new.keys() == {"name"}
    again = recapture.renamed_config(new, "_r3", ["public.b"])
    assert (again["topic.prefix"], again["slot.name"]) == ("shop_r3", "local_shop_r3")


def test_a_new_connector_of_mariadb():
    new = recapture.renamed_config(MARIADB, "_r2", ["shop.a"])
    assert (
        new["topic.prefix"],
        new["schema.history.internal.kafka.topic"],
        new["table.include.list"],
    ) == ("db1_r2", "dbhistory.demo1_r2", "shop.a")
    ids = {
        new["database.server.id"],
        recapture.renamed_config(MARIADB, "_r3", ["shop.a"])["database.server.id"],
        "42",
    }
    assert len(ids) == 3 and all(0 < int(n) < 2**31 for n in ids)
    assert "slot.name" not in new


@pytest.mark.parametrize("kind", ["io.confluent.connect.jdbc.JdbcSourceConnector", ""])
def test_a_connector_that_reads_no_log_is_refused(kind):
    with pytest.raises(
        ConnectorError,
        match="(?s)cannot be recaptured.*expected.*PostgresConnector, MariaDbConnector",
    ):
        recapture.run(None, None, "shop", {**POSTGRES, "connector.class": kind})


def test_a_connector_without_a_named_slot_gets_one():
    """Debezium's default is `debezium` for every connector.

    The new one would read the old one's slot.
    """
    unnamed = {key: value for key, value in POSTGRES.items() if key != "slot.name"}
    assert recapture.renamed_config(unnamed, "_r2", ["public.b"])["slot.name"] == "debezium_r2"


# --- which tables
# ----------------------------------------------------------------------------------------------------

SOURCES = {
    "own": "topic-shop.public.b",
    "r2": "topic-shop_r2.public.b",
    "other": "topic-shop.public.a",
    "unknown": "*",
    "landed": "landed-topics_shop.public.b_partition_0",
    "alike": "topic-shop.public.b2",
}


class Lab:
    """A Connect with connectors, and a lake whose tables report what they have read."""

    def __init__(self, path, monkeypatch):
        places = ("landing", "tables", "checkpoints", "dead_letters")
        self.world = with_settings(
            params.load("local"), lake={part: f"file:{path}/{part}" for part in places}
        )
        self.table = hudi.table(self.world, "b", key=("id",), ordering="__lsn")
        self.deployed, self.did, self.said, self.rows = {"shop": POSTGRES}, [], [], 3
        for module, name, answer in (
            (connect, "names", lambda _: sorted(self.deployed)),
            (connect, "deployed", lambda _, name: self.deployed.get(name, {})),
            (connect, "validate", lambda *_: None),
            (connect, "failure", lambda *_: None),
            (connect, "apply", lambda _, name, config: self.did.append(name)),
            (connect, "delete", lambda _, name: self.did.append(f"-{name}")),
            (recapture.hudi, "drop", lambda *_: None),
            (recapture.topics, "names", lambda _: ["shop.public.b"]),
            (recapture.topics, "wait_for_messages", lambda *_, **__: 1),
            (recapture.hudi, "read", lambda *_: SimpleNamespace(count=lambda: 3)),
            (PostgreSQL, "all_slots", staticmethod(lambda _: pd.DataFrame({"slot_name": []}))),
            (PostgreSQL, "query", staticmethod(lambda *_, **__: pd.DataFrame({"n": [self.rows]}))),
        ):
            monkeypatch.setattr(module, name, answer)

    def progress(self, **read):
        """Let the table have read these sources, {name of one in SOURCES: progress}."""
        self.commit(
            self.table, "20240101000000000", {SOURCES[name]: last for name, last in read.items()}
        )

    @staticmethod
    def commit(table, instant, progress, **body):
        files.write_text(
            f"{table.base}/.hoodie/{instant}.commit",
            json.dumps({**body, "extraMetadata": {PROGRESS_KEY: json.dumps(progress)}}),
        )

    def journal(self, done, suffix="_r2"):
        files.write_text(
            f"{self.world.lake.checkpoints}/recapture/shop.json",
            json.dumps({"suffix": suffix, "tables": [["public.b", self.table.base]], "done": done}),
        )

    def run(self, *captured, config=None):
        return recapture.run(
            None,
            self.world,
            "shop",
            config or POSTGRES,
            *(captured or [recapture.CapturedTable("public.b", self.table)]),
            timeout=0.1,
            progress=self.said.append,
        )


@pytest.fixture
def lab(tmp_path, monkeypatch):
    return Lab(tmp_path, monkeypatch)


@pytest.mark.parametrize("read", ["other", "unknown", "alike"])
def test_a_table_with_rows_of_other_sources_is_refused(lab, read):
    """The copy of one source would replace all of its rows."""
    lab.progress(own={"batch": 1}, **{read: {"batch": 1}})
    with pytest.raises(LakeError, match="table b holds rows of other sources than public.b"):
        lab.run()
    assert lab.did == [] and not files.list_files(
        f"{lab.world.lake.checkpoints}/recapture"
    ).keys() - {"shop.json.lock"}


def test_what_a_table_has_read_of_its_own_source_or_no_longer_reads_is_no_other(lab):
    lab.progress(
        own={"batch": 1}, landed={"batch": 1}, r2={"batch": 1}, other={"batch": 1, REPLACED_BY: "x"}
    )
    assert len(replacement(lab, recapture.CapturedTable("public.b", lab.table)).own_progress()) == 4


def replacement(lab, captured, config=POSTGRES):
    """Return the replacement of one table by a recapture with suffix `_r2`."""
    job = recapture._Recapture(
        None, lab.world, "shop", config, (captured,), progress=lab.said.append, suffix="_r2"
    )
    return recapture._Replacement(job, captured)


def renamed_table(lab, config=POSTGRES):
    """Return the recapture and replacement of `public.b`, formerly `public.a`."""
    captured = recapture.CapturedTable("public.b", lab.table, former_name="public.a")
    table = replacement(lab, captured, config)
    return table.job, table


def test_what_a_table_has_read_under_its_former_name_is_its_own(lab):
    lab.progress(own={"batch": 1}, other={"batch": 1})
    with pytest.raises(
        LakeError,
        match=r"(?s)read into it: topic-shop\.public\.a .*CapturedTable\(…, former_name=its previous name",
    ):
        lab.run()
    job, table = renamed_table(lab)
    assert table.own_progress().keys() == {SOURCES["own"], SOURCES["other"]}
    lab.progress(other={"batch": 1}, alike={"batch": 1})
    with pytest.raises(LakeError, match=r"read into it: topic-shop\.public\.b2 "):
        table.own_progress()


def test_the_topic_of_a_former_name_is_an_old_one_and_refused(lab, monkeypatch):
    """Also if the table has read only landed files of it."""
    lab.progress(landed={"batch": 1})
    job, table = renamed_table(lab)
    monkeypatch.setattr(recapture.topics, "names", lambda _: ["shop.public.a", "shop.public.c"])
    assert job._result(job.new_config).old_topics == ["shop.public.a"]
    lab.commit(table.copy, "20240101000000000", {table.topic.id: {"batch": 0}})
    monkeypatch.setattr(
        recapture, "rewrite", lambda *args: lab.did.append(json.loads(args[-1][PROGRESS_KEY]))
    )
    table._rewrite()
    replaced = {REPLACED_BY: "shop_r2.public.b"}
    assert lab.did == [
        {
            SOURCES["own"]: replaced,
            SOURCES["other"]: replaced,
            SOURCES["r2"]: {"batch": 0},
            SOURCES["landed"]: {"batch": 1, **replaced},
        }
    ]


def test_a_former_name_leaves_the_old_connector_where_its_list_names_it(lab, monkeypatch):
    applied = []
    monkeypatch.setattr(
        connect, "apply", lambda _, name, config: applied.append(config["table.include.list"])
    )
    for list_, remaining in (
        (r"public\.a,public.b,public.c", ["public.c"]),
        ("public.[ad],public.b", ["public.[ad]"]),
        ("public.a,public.[bd]", []),
    ):
        applied.clear()
        renamed_table(lab, {**POSTGRES, "table.include.list": list_})[0]._release_old_connector()
        assert applied == remaining
    assert "stays, and still captures these tables" in lab.said[-1]


def test_the_journal_has_a_former_name(lab):
    lab.deployed["shop_r2"] = POSTGRES
    job, table = renamed_table(lab)
    job._write_journal(is_done=False)
    assert job._is_resumable(job._read_journal())
    with pytest.raises(
        LakeError, match="(?s)not finished.*public.b into file:.*, former_name=public.a"
    ):
        lab.run()
    job._write_journal(is_done=True)
    assert not job._is_finished(job._read_journal()), "the old connector captures public.a"


def test_a_former_name_within_a_pattern_stays_with_the_old_connector(lab, monkeypatch):
    config = {**POSTGRES, "table.include.list": "public.[ad],public.b"}
    lab.deployed |= {"shop": {**config, "table.include.list": "public.[ad]"}, "shop_r2": POSTGRES}
    job, table = renamed_table(lab, config)
    monkeypatch.setattr(recapture.topics, "names", lambda _: ["shop.public.a", "shop.public.b"])
    assert job._result(job.new_config).old_topics == ["shop.public.b"]
    job._write_journal(is_done=True)
    assert job._is_finished(job._read_journal())


@pytest.mark.parametrize("tables", [1, 0])
def test_a_former_name_is_no_other_tables(lab, monkeypatch, tables):
    """The old connector would no longer capture that other table."""
    job, table = renamed_table(lab)
    monkeypatch.setattr(
        PostgreSQL, "query", staticmethod(lambda *args: pd.DataFrame({"n": [tables]}))
    )
    if tables:
        with pytest.raises(
            LakeError, match="public.a is a table of its own, not the former name of public.b"
        ):
            table._check_former_name()
    else:
        table._check_former_name()
        job.sources.append("public.a")
        with pytest.raises(LakeError, match="is a table of its own"):
            table._check_former_name()


def test_one_table_for_two_sources_is_refused(lab):
    with pytest.raises(LakeError, match="table b is named twice"):
        lab.run(
            recapture.CapturedTable("public.a", lab.table),
            recapture.CapturedTable("public.b", lab.table),
        )
    assert lab.did == []


# --- a second call
# ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("old", [None, {**POSTGRES, "table.include.list": "public.a"}])
def test_a_finished_recapture_changes_nothing_when_it_is_repeated(lab, old):
    """Tables may have been added to the new connector since."""
    more = {**POSTGRES, "topic.prefix": "shop_r2", "table.include.list": "public.b,public.c"}
    lab.deployed = {"shop_r2": {**more, "name": "shop_r2"}, **({"shop": old} if old else {})}
    lab.journal(done=True)
    done = lab.run()
    assert (done.connector, done.rows, done.old_topics, lab.did) == (
        "shop_r2",
        {"b": 3},
        ["shop.public.b"],
        [],
    )
    assert done.config["table.include.list"] == "public.b,public.c" and "name" not in done.config
    assert lab.said == [
        "done. Keep the new configuration: connector shop_r2, table.include.list=public.b,public.c, "
        "topic.prefix=shop_r2"
    ]


def test_a_connector_that_was_deployed_again_is_recaptured_anew(lab, monkeypatch):
    """The old topic has changes since the first recapture, so its result does not count."""
    lab.deployed["shop_r2"] = {**POSTGRES, "topic.prefix": "shop_r2"}
    lab.journal(done=True)
    monkeypatch.setattr(recapture._Replacement, "fill_copy", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        lab.run()
    assert lab.did == ["shop_r3"]


# --- a copy
# ----------------------------------------------------------------------------------------------------------


def test_a_copy_is_compared_after_an_ingest_that_wrote_something_only(lab, monkeypatch):
    """No message count is awaited: rows deleted before the snapshot produce no message."""
    wrote, compared, asked = iter([2, 0, 0, 1]), [], []

    class Frame:
        columns = ["id"]

        def select(self, *_):
            return self

        def toPandas(self):  # noqa: N802 - Spark's name
            compared.append(1)
            return pd.DataFrame({"id": [1, 2, 3][: len(compared) + 1]})

    def frame(_, query, **__):
        if "count" in str(query):
            return pd.DataFrame({"n": [5]})
        asked.append(1)
        return pd.DataFrame({"id": [1, 2, 3]})

    monkeypatch.setattr(PostgreSQL, "query", staticmethod(frame))
    monkeypatch.setattr(
        recapture.topics,
        "wait_for_messages",
        lambda _, topic, n, **__: asked.append(n) if n > 1 else 1,
    )
    monkeypatch.setattr(
        recapture.hudi, "ingest", lambda *_, **__: SimpleNamespace(messages=next(wrote))
    )
    monkeypatch.setattr(recapture.hudi, "read", lambda *_: Frame())
    monkeypatch.setattr(recapture._Replacement, "_raise_on_dead_letters", lambda *_: None)
    schema = T.StructType([T.StructField("id", T.IntegerType())])
    replacement(lab, recapture.CapturedTable("public.b", lab.table, schema=schema)).fill_copy()
    assert (len(compared), asked) == (2, [1, 1])
    assert lab.said == ["the copy of b equals public.b: 3 rows"]


# --- afterwards
# ------------------------------------------------------------------------------------------------------


def test_the_topic_of_before_is_refused_afterwards(lab):
    """Its connector publishes to it until it is deleted, and the new rows lack rows deleted since."""
    lab.progress(own={"batch": 1, REPLACED_BY: "shop_r2.public.b"}, r2={"batch": 0})
    job = ingesting.IngestJob.__new__(ingesting.IngestJob)
    job.table, job.source, job.replay = lab.table, hudi.Topic("shop.public.b"), True
    with pytest.raises(LakeError, match="(?s)was captured anew.*expected.*topic shop_r2.public.b"):
        job._progress(completed_actions(lab.table))
    job.source = hudi.Topic("shop_r2.public.b")
    assert job._progress(completed_actions(lab.table))[job.source.id] == {"batch": 0}


def test_what_follows_from_a_replacement_is_done_again_after_a_kill(lab, monkeypatch):
    lab.progress(own={"batch": 1, REPLACED_BY: "shop_r2.public.b"}, r2={"batch": 0})
    letter = f"{hudi.dead_letters_path(lab.world, lab.table)}/topic-shop.public.b/0/x.json"
    files.write_text(letter, "{}")
    monkeypatch.setattr(recapture, "finish_rewrite", lambda _, table: lab.did.append(table.name))
    monkeypatch.setattr(recapture._Replacement, "_rewrite", lambda *_: 1 / 0)
    replacement(lab, recapture.CapturedTable("public.b", lab.table)).replace_rows()
    assert lab.did == ["b"] and files.read_text(letter) is None


def test_the_journal_names_every_connector_that_was_made(lab):
    def write_journal(connector, config, suffix, done):
        job = recapture._Recapture(None, lab.world, connector, config, (), suffix=suffix)
        job._write_journal(is_done=done)

    write_journal("shop", POSTGRES, "_r2", True)
    write_journal("shop", POSTGRES, "_r3", True)
    renamed = recapture.renamed_config(POSTGRES, "_r3", ["public.b"])
    write_journal("shop_r3", renamed, "_r4", False)
    write_journal("other", POSTGRES, "_r2", False)
    made = recapture.connectors_of_recaptures(lab.world, "shop")
    assert {name: config["slot.name"] for name, config in made.items()} == {
        f"shop_r{n}": f"local_shop_r{n}" for n in (2, 3, 4)
    }
    assert not any(key.startswith("database.p") for config in made.values() for key in config), (
        "no password"
    )
    assert recapture.connectors_of_recaptures(lab.world) == {}


# --- a rewriting
# -----------------------------------------------------------------------------------------------------


def test_a_rewriting_sees_a_compaction_that_was_planned_before_it_held_the_table(lab, monkeypatch):
    """A running compaction is awaited, not run a second time."""
    lab.progress(own={"batch": 1})
    pending = iter([["1"], ["1"], []])
    inflight = iter([[("1", "compaction.inflight", None)], []])
    monkeypatch.setattr(rewriting, "pending_compactions", lambda _: next(pending, []))
    monkeypatch.setattr(rewriting, "timeline_files", lambda _: next(inflight, []))
    monkeypatch.setattr(rewriting, "check_clock", lambda _: None)
    monkeypatch.setattr(rewriting.catalog, "compact", lambda *_: lab.did.append("compacted"))
    monkeypatch.setattr(rewriting, "finish_rewrite", lambda *_: lab.did.append("shown"))
    monkeypatch.setattr(type(lab.table), "options", lambda _: {})
    rows = MagicMock()
    rows.write.format().options().mode().save = lambda _: lab.did.append("saved")
    rows.to.return_value = rows
    rewriting.rewrite(None, lab.table, rows, T.StructType(), {})
    assert lab.did == ["saved", "shown"]
    pending = iter([["1"], ["1"], ["1"], []])
    lab.did.clear()
    rewriting.rewrite(None, lab.table, rows, T.StructType(), {})
    assert lab.did == ["compacted", "saved", "shown"]


def test_the_entries_follow_a_rewriting_that_is_the_last_commit(lab, monkeypatch):
    """Its process may have been killed before it updated the catalog."""
    monkeypatch.setattr(rewriting, "finish_rewrite", lambda _, table: lab.did.append(table.name))
    lab.progress(own={"batch": 1})
    rewriting.finish_interrupted_rewrite(None, lab.table, rewriting.completed_actions(lab.table))
    assert lab.did == []
    lab.commit(lab.table, "20240101000001000", {}, operationType="INSERT_OVERWRITE_TABLE")
    rewriting.finish_interrupted_rewrite(None, lab.table, rewriting.completed_actions(lab.table))
    assert lab.did == ["b"]
