"""Replication slots do not retain the log that others write while the captured tables stand
still."""

import time

import pytest
from workbench import connect, tracks
from workbench.base.wait import wait_until
from workbench.cli import main as cli
from workbench.source import capture_health, postgres
from workbench.topic import topics
from workbench.tracks import log_based, museum, outbox, storefront
from worlds import with_settings

QUIET, FOREIGN = "slots_test", "slots_test_foreign"
LIMIT = 32 << 20  # bytes
WALKTHROUGHS = (outbox.TRACK, log_based.TRACK, museum.TRACK)


@pytest.fixture
def foreign(world):
    """A database of its own with a table that nothing captures."""
    postgres.create_database(world, FOREIGN)
    postgres.execute(
        world, "CREATE TABLE foreign_rows (id bigserial PRIMARY KEY, text text)", database=FOREIGN
    )
    yield FOREIGN
    postgres.execute(world, f"DROP DATABASE {FOREIGN} WITH (FORCE)", database="postgres")


@pytest.fixture
def quiet(world):
    """A captured table that does not change."""
    postgres.create_database(world, QUIET)
    postgres.execute(
        world,
        "CREATE TABLE quiet (id int PRIMARY KEY); INSERT INTO quiet VALUES (1)",
        database=QUIET,
    )
    postgres.create_publication(world, QUIET, ["public.quiet"], QUIET)
    postgres.grant_replication(world, ["public.quiet"], QUIET)
    yield QUIET
    connect.delete(world, QUIET)
    for slot in postgres.slots(world, QUIET)["slot_name"]:
        postgres.drop_slot(world, slot, QUIET)
    postgres.execute(world, f"DROP DATABASE {QUIET} WITH (FORCE)", database="postgres")
    topics.delete(world, *(topic for topic in topics.names(world) if QUIET in topic))


def write(world, database, rows=60_000):
    postgres.execute(
        world,
        "INSERT INTO foreign_rows (text) SELECT repeat('x', 300) FROM generate_series(1, %s)",
        [rows],
        database,
    )


@pytest.mark.parametrize("name", ["outbox_source", "moma_source"])
def test_a_slot_moves_on_while_its_table_does_not_change(world, quiet, foreign, name):
    config = {
        **connect.config(world, name),
        "database.dbname": quiet,
        "publication.name": quiet,
        "topic.prefix": quiet,
        "slot.name": quiet,
        "table.include.list": "public.quiet",
        "heartbeat.interval.ms": "500",
        **{
            f"{side}.converter": "org.apache.kafka.connect.json.JsonConverter"
            for side in ("key", "value")
        },
    }
    config = {
        key: value
        for key, value in config.items()
        if "apicurio" not in key and key != "schema.include.list"
    }
    connect.apply(world, quiet, config)
    topics.wait_for_messages(world, f"{quiet}.public.quiet", 1, connector=quiet)
    write(world, foreign, 1_000)
    position = postgres.position_to_int(postgres.log_position(world, foreign))
    wait_until(
        lambda: (
            postgres.position_to_int(postgres.slots(world, quiet)["confirmed"][0] or "0/0")
            >= position
        ),
        "the slot to be confirmed up to what others have written",
        timeout=20,
        failure_reason=lambda: connect.failure(world, quiet),
    )
    assert topics.offset_span(world, f"{quiet}.public.quiet") == 1
    # the message goes to no topic: neither Debezium's own for messages nor that of the table
    assert {t for t in topics.names(world) if quiet in t} == {
        f"{quiet}.public.quiet",
        f"__debezium-heartbeat.{quiet}",
    }


def test_status_and_doctor_report_what_a_slot_retains(world, foreign, capsys):
    statement = "SELECT pg_create_logical_replication_slot('slots_test_idle', 'pgoutput')"
    postgres.execute(world, statement, database=foreign)

    def finding(at):
        [found] = [f for f in capture_health.examine(at) if "slots_test_idle" in f.subject]
        return found

    try:
        write(world, foreign)
        cli.status("local")
        title = (
            f"replication slot slots_test_idle (database {foreign}): inactive, the server retains "
        )
        [line] = [x for x in capsys.readouterr().out.splitlines() if x.startswith(title)]
        assert 15 < float(line.removeprefix(title).split()[0]) < 2_000, line
        assert finding(world).level == "ok", "not much yet"
        strict = with_settings(world, watch={"retained_mib": (10.0, 20.0)})
        assert finding(strict).level == "warning"
        assert f"drop_slot(world, 'slots_test_idle', '{foreign}')" in finding(strict).remedy
    finally:
        postgres.drop_slot(world, "slots_test_idle", foreign)
    assert not [f for f in capture_health.examine(world) if "slots_test_idle" in f.subject]


@pytest.mark.drill
def test_no_slot_of_the_walkthroughs_retains_what_others_write(world, foreign):
    """The connectors of notebooks 12, 32, 52 and 74, and six large inserts into a table that
    nothing captures."""
    for each in WALKTHROUGHS:
        tracks.ensure(world, each, each.all_steps[1].notebook)
    storefront.restart_clean(world)
    storefront.enable_outbox_connectors(world)
    storefront.wait_until_consistent(world)
    captured = {
        topic: topics.offset_span(world, topic)
        for topic in topics.names(world)
        if not topic.startswith(("__debezium-heartbeat.", "connect-"))
    }

    def retained():
        return postgres.all_slots(world).set_index("slot_name")["bytes_behind"].to_dict()

    assert len(retained()) >= 6
    begun = postgres.position_to_int(postgres.log_position(world, foreign))
    for _ in range(6):
        write(world, foreign)
    assert postgres.position_to_int(postgres.log_position(world, foreign)) - begun > 4 * LIMIT
    written, most = time.monotonic(), max(retained().values())
    wait_until(
        lambda: max(retained().values()) < LIMIT,
        "all slots to be less than 32 MiB behind",
        timeout=60,
        interval=1,
    )
    print(
        f"at most {most >> 20} MiB behind; less than {LIMIT >> 20} after {time.monotonic() - written:.0f} s"
    )
    assert {topic: topics.offset_span(world, topic) for topic in captured} == captured
    for each in (storefront.TRACK, *WALKTHROUGHS):
        tracks.reset(world, each)
        remaining = each.resources.remaining(world)
        assert not any(remaining.values()), remaining
