"""A session of an analyst on real tables: %%sql and the slider over labels."""

import re
from types import SimpleNamespace

import instance
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from lake_help import labeled_table
from workbench import explore, hudi
from workbench.base.errors import LakeError
from workbench.spark import session as lake_session
from workbench.topic import topics


# a Merge-on-Read table has base files, as a Copy-on-Write table, and logs
@pytest.fixture(scope="module", params=[pytest.param("cow", marks=pytest.mark.drill), "mor"])
def past(world, spark, request):
    topic, table = labeled_table(world, spark, request.param)
    yield SimpleNamespace(table=table, view=hudi.register(spark, table))
    hudi.drop(spark, world, table)
    topics.delete(world, topic)


@pytest.fixture
def session(world):
    """A shell with the set-up of a notebook: a function that runs a cell, and returns its outputs."""
    shell = InteractiveShell.instance()
    shell.user_ns.update(world=world, explore=explore)

    def run(cell):
        with capture_output() as captured:
            result = shell.run_cell(cell)
        result.raise_error()
        return [output.data for output in captured.outputs]

    with capture_output():
        explore.load_ipython_extension(shell)
    run.variables = shell.user_ns
    yield run
    InteractiveShell.clear_instance()


def test_a_statement_as_of_each_label(past, session):
    query = f"SELECT id, part, text FROM {past.view} WHERE id <= :last ORDER BY id"
    session.variables["last"] = 2
    expected = {
        "": [(1, "q", "one, moved")],
        "--at t1": [(1, "p", "<i>1</i>"), (2, "p", "<i>2</i>")],
        "--at t2": [(1, "p", "one, changed"), (2, "p", "<i>2</i>")],
        "--at t3": [(1, "q", "one, moved")],
    }
    for options, rows in expected.items():
        (data,) = session(f"%%sql found << {options}\n{query}")
        assert [tuple(row) for row in session.variables["found"].to_numpy()] == rows, options
        assert ("FROM as_of_0 AS" in data["text/html"]) == ("--at" in options)
        assert re.search(r"\d rows?, [\d.]+ k?B read", data["text/plain"].replace("bytes", "B"))
    joined = f"""WITH a AS (SELECT * FROM {past.view})
        SELECT count(*) AS n FROM a JOIN {past.view} AS b ON a.id = b.id"""
    session(f"%%sql found << --at t1\n{joined}")
    assert session.variables["found"].loc[0, "n"] == 30
    session(f"%%sql found << --at 20200101000000000\n{joined}")
    assert session.variables["found"].loc[0, "n"] == 0, "before the first commit"


def test_labels_and_tables_that_are_not_there(past, session):
    for cell, message in (
        (f"%%sql --at t4\nSELECT * FROM {past.view}", "(?s)no instant labeled 't4'.*valid: t1"),
        ("%%sql --at t1\nSELECT * FROM datalake.nosuch", "(?s)datalake`.`nosuch` cannot be found"),
        (f"%%sql\nSELECT * FROM {past.view} WHERE (", "not Athena SQL"),
    ):
        with pytest.raises(LakeError, match=message):
            session(cell)


def test_the_slider_has_the_frame_of_each_label(past, world):
    slider = explore.slider(world, past.table, at="t2", where="id IN (1, 2, 31)")
    assert list(slider.pages) == ["t1", "t2", "t3"]
    same = explore.at(world, past.table, "t2", where="id IN (1, 2, 31)")
    assert slider.frame.rows.equals(same.rows) and repr(same) in repr(slider)
    assert "one, moved" in slider.pages["t3"] and "one, moved" not in slider.pages["t2"]
    assert "&lt;i&gt;" in slider.pages["t1"] and "<i>" not in slider._repr_html_()


@pytest.mark.drill
@pytest.mark.parametrize("name, ports", [("s3", 60), ("cluster", 80)])
def test_tables_in_other_worlds(name, ports):
    """A table of each type, with three labels: its rows, differences and profile are those of Spark."""
    services = ["kafka", "spark", *(["s3"] if name == "s3" else [])]
    with instance.world_of_its_own(name, ports, services) as world:
        spark = lake_session(world)
        for kind in ("cow", "mor"):
            table = labeled_table(world, spark, kind)[1]
            expected = hudi.as_of(spark, world, table, "t3").count()
            assert len(explore.at(world, table, "t3").rows) == expected
            assert list(explore.slider(world, table).pages) == ["t1", "t2", "t3"]
            assert set(explore.diff(world, table, "t1", "t3").cells["column"]) >= {"text"}
            assert len(explore.profile(world, table, against="t1").rows)
            assert explore.tables(world)["labels"].str.contains("t1, t2, t3").any()
