"""Short names keep what tells files apart, and change nothing else."""

import pandas as pd
import pytest
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
