"""Short names keep what tells files apart, and change nothing else."""

import pandas as pd
import pytest
from workbench import hudi
from workbench.base.errors import LakeError
from workbench.display import show

GROUP = "18b75394-b518-415d-959b-e50fc55f4cdb-3"


@pytest.mark.parametrize(
    "name, short",
    [
        (f"{GROUP}_0-9236-0_20261121215023167.parquet", "18b75394…-3_20261121215023167.parquet"),
        (
            f"nationality=American/.{GROUP}_20261121215023167.log.12_0-11-7004",
            "American/.18b75394…-3_20261121215023167.log.12",
        ),
        (GROUP, "18b75394…-3"),
        ("nationality=__HIVE_DEFAULT_PARTITION__", "(null)"),
        ("classification=(not assigned)", "(not assigned)"),
        ("year=2026/month=11", "2026/11"),
        ("A text_1-2-3 of no file", "A text_1-2-3 of no file"),
    ],
)
def test_short_names(name, short):
    assert list(show.short_names(pd.DataFrame({"n": [name]}), "n")["n"]) == [short]


def test_short_names_leave_the_frame_the_other_columns_and_what_is_missing():
    frame = pd.DataFrame({"file": [GROUP, None], "other": [GROUP, None]}, index=[7, 7])
    shown = show.short_names(frame, "file")
    assert list(shown["file"]) == ["18b75394…-3", None] and list(shown.index) == [7, 7]
    assert list(shown["other"]) == list(frame["file"]) == [GROUP, None]
    with pytest.raises(LakeError, match="no column 'fiel'"):
        show.short_names(frame, "fiel")


def test_timeline_steps_are_those_of_the_last_actions_in_order(tmp_path):
    (tmp_path / ".hoodie").mkdir()
    for name in (
        "20261121215026534.deltacommit",
        "20261121215115339.deltacommit.requested",
        "hoodie.properties",
        "20261121215115339.deltacommit",
        "20261121215115339.deltacommit.inflight",
        "20261121215120519.compaction.requested",
    ):
        (tmp_path / ".hoodie" / name).touch()
    table = hudi.Table("t", f"file:{tmp_path}", key=("id",), ordering="at")
    assert show.timeline_steps(table).to_numpy().tolist() == [
        ["20261121215115339", 1, "deltacommit.requested"],
        ["20261121215115339", 2, "deltacommit.inflight"],
        ["20261121215115339", 3, "deltacommit"],
        ["20261121215120519", 1, "compaction.requested"],
    ]


def test_flattened_says_where_each_field_comes_from_and_goes_to():
    event = {
        "before": None,
        "after": {"id": 1, "name": None},
        "source": {"lsn": 7, "ts_ms": 5, "xmin": None},
        "op": "r",
        "ts_ms": 6,
    }
    record = {
        "id": 1,
        "name": None,
        "__deleted": "false",
        "__op": "r",
        "__lsn": 8,
        "__source_ts_ms": 9,
    }
    assert show.field_mapping(event, record, "op,lsn,source.ts_ms").to_numpy().tolist() == [
        ["before", "null", "", ""],
        ["after.id", "1", "id", "1"],
        ["after.name", "null", "name", "null"],
        ["source.lsn", "7", "__lsn", "8"],
        ["source.ts_ms", "5", "__source_ts_ms", "9"],
        ["source.xmin", "null", "", ""],
        ["op", "r", "__op", "r"],
        ["ts_ms", "6", "", ""],
        ["", "", "__deleted", "false"],
    ]
