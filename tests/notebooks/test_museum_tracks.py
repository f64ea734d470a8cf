"""The tracks of the museum's database and of tables of one's own, executed in order, and the teardown.

The second track explores what the first has made.
"""

import pytest
from notebook_help import (
    MUSEUM_TRACKS,
    TEARDOWN,
    check_refused_first,
    check_track,
    errors,
    execute_changed,
    failures,
)
from workbench import connect
from workbench.run import runner
from workbench.source import postgres
from workbench.topic import topics
from workbench.tracks import bikeshare, museum


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", MUSEUM_TRACKS)
def test_a_track_passes(world, name):
    check_track(name)


@pytest.mark.parametrize(
    "name, given",
    [
        ("51_source_database", {"from_dir": "files"}),
        *[
            pytest.param(*each, marks=pytest.mark.drill)
            for each in [
                ("51_source_database", {"from_dir": "nowhere"}),
                ("51_source_database", {"scale": 0.0}),
                ("53_hudi_ingest", {"source": "bogus"}),
            ]
        ],
    ],
)
def test_what_is_given_is_judged_before_anything_is_removed(world, tmp_path, name, given):
    def count_rows():
        return [museum.flow.count(world, table) for table in museum.flow.names]

    check_refused_first(world, tmp_path, museum.TRACK, count_rows, name, given)


@pytest.mark.drill
def test_a_label_that_slipped_turns_red_and_is_named(world, tmp_path):
    seen = errors(
        *execute_changed("56_time_travel", 'hudi.label(world, mor, "t3")', before="## 3. As of"),
        tmp_path,
    )
    assert seen and all(text in seen[0] for text in ("row=4", "German")), seen


def test_the_teardown_leaves_nothing(world):
    before = museum.TRACK.resources.remaining(world)
    assert before["topics"] and before["tables in the lake"], (
        "the series has left nothing to tear down"
    )
    result = runner.run([TEARDOWN], "local", progress=False)
    assert result.status == "passed", failures(result)
    assert connect.names(world) == [] and len(postgres.slots(world)) == 0
    assert not [t for t in topics.names(world) if "cdc_events" in t]
    for track in (museum.TRACK, bikeshare.TRACK):
        assert not any(track.resources.remaining(world).values())
    slots = postgres.slots(world, museum.DATABASE)["slot_name"]
    assert not slots.str.startswith(postgres.slot_prefix(world)).any()
