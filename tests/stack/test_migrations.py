"""Kinds of migration as applications make them (tests/help/migrations.py): each ends with a lake
that is the source.

At once, after its rows were written again, or after a new snapshot, which the message that refuses it
names; or docs/limits.md says what is to be done.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

import avro_help
import mariadb_help
import pytest
from migrations import AFTER_SNAPSHOT, AFTER_UPDATE, EQUAL, LIMIT, MARIADB, POSTGRES
from workbench import connect, hudi
from workbench.base.errors import LakeError
from workbench.checks import check_values
from workbench.source import mariadb, postgres
from workbench.topic import registry, topics

pytestmark = pytest.mark.drill
NAME = "migrations"
FENCE = "fence"  # the table whose last row is written after all others


def tables_of(kinds):
    """{kind: name of its table}."""
    return {kind: f"t{n:02d}" for n, kind in enumerate(kinds)}


def begin(kinds):
    """The statements that make the tables with two rows each."""
    yield f"CREATE TABLE {FENCE} (id int PRIMARY KEY)"
    yield f"INSERT INTO {FENCE} VALUES (1)"
    for kind, t in tables_of(kinds).items():
        it = kinds[kind]
        if it.setup:
            yield it.setup.format(t=t)
        yield f"CREATE TABLE {t} (id {it.key_type}, touched int NOT NULL DEFAULT 0, c {it.column_type.format(t=t)})"
        yield f"INSERT INTO {t} VALUES (1, 0, {it.old_values[0]}), (2, 0, {it.old_values[1]})"


def migrate(kinds):
    for kind, t in tables_of(kinds).items():
        it, now = kinds[kind], source_of(kinds[kind], t)
        yield from it.statements.format(t=t).split("; ")
        key = "post_id" if kind == "rename a key column" else "id"
        columns = ", ".join(filter(None, (key, "touched", it.columns)))
        yield f"INSERT INTO {now} ({columns}) VALUES ({', '.join(filter(None, ('3', '0', it.new_values)))})"
    yield f"INSERT INTO {FENCE} VALUES (2)"


def source_of(kind, t):
    return kind.renamed_to.format(t=t) or t


class Lab:
    """One of both databases, its connector, and the lake tables of all kinds."""

    def __init__(self, world, spark, kinds, db, database, schema, connector, config):
        self.world, self.spark, self.kinds, self.db, self.database = (
            world,
            spark,
            kinds,
            db,
            database,
        )
        self.schema, self.connector, self.config = schema, connector, config
        ordering = "__lsn" if db is postgres else mariadb_help.ORDERING
        self.lake = {
            kind: hudi.table(world, f"{connector}_{t}", key=("id",), ordering=ordering, type=type)
            for (kind, t), type in zip(tables_of(kinds).items(), cycle(["cow", "mor"]))
        }
        self.migrated = False
        # {kind: [what the ingest said after each step, "" where it went well, else its difference]}
        self.seen = {}

    def execute(self, statements):
        for statement in statements:
            self.db.execute(self.world, statement, database=self.database)

    def fence(self, n, prefix):
        """Wait until the connector has come to a row that was written after all others."""
        topics.wait_for_messages(
            self.world, f"{prefix}.{self.schema}.{FENCE}", n, timeout=300, connector=self.connector
        )

    def look(self, only, prefix):
        """Ingest the tables of these kinds, and note of each what it is then."""
        names = tables_of(self.kinds)
        if prefix != self.config["topic.prefix"]:
            names = {kind: source_of(self.kinds[kind], t) for kind, t in names.items()}

        def one(kind):
            topic = f"{prefix}.{self.schema}.{names[kind]}"
            try:
                hudi.ingest(
                    self.spark, self.world, hudi.Topic(topic, format="avro"), self.lake[kind]
                )
            except LakeError as e:
                return f"refused: {e}"
            letters = hudi.dead_letters(self.spark, self.world, self.lake[kind]).collect()
            return f"dead letters: {letters[0].reason}" if letters else self.difference(kind)

        with ThreadPoolExecutor(2) as pool:
            for kind, said in zip(only, pool.map(one, only)):
                self.seen.setdefault(kind, []).append(said)

    def difference(self, kind):
        t = tables_of(self.kinds)[kind]
        now = source_of(self.kinds[kind], t) if self.migrated else t
        truth = self.db.query(self.world, f"SELECT * FROM {now}", database=self.database)
        lake = hudi.read(self.spark, self.lake[kind])
        lake = lake.select(*(c for c in truth.columns if c in lake.columns)).toPandas()
        return "; ".join(check_values.differences(truth, lake, ["id"], ("lake", "source"))[:3])

    def left(self):
        """The kinds whose lake is not yet the source."""
        return [kind for kind in self.kinds if self.seen[kind][-1]]

    def walk(self):
        """The first rows, the migration, an UPDATE of all rows, a new snapshot: of each kind as far as
        it needs it."""
        for t in (
            *tables_of(self.kinds).values(),
            FENCE,
        ):  # a snapshot takes them in an order of its own
            topics.wait_for_messages(
                self.world,
                f"{self.config['topic.prefix']}.{self.schema}.{t}",
                1 if t == FENCE else 2,
                connector=self.connector,
            )
        self.look([*self.kinds], self.config["topic.prefix"])
        assert not self.left(), self.seen
        self.execute(migrate(self.kinds))
        self.migrated = True
        self.fence(2, self.config["topic.prefix"])
        self.look([*self.kinds], self.config["topic.prefix"])
        again = [kind for kind in self.left() if not self.seen[kind][-1].startswith("refused")]
        self.execute(
            f"UPDATE {source_of(self.kinds[kind], tables_of(self.kinds)[kind])} SET touched = touched + 1"
            for kind in again
        )
        self.execute([f"INSERT INTO {FENCE} VALUES (3)"])
        self.fence(3, self.config["topic.prefix"])
        self.look(again, self.config["topic.prefix"])
        self.print()  # a new snapshot that fails leaves nothing to judge
        self.capture_anew([kind for kind in self.left() if self.kinds[kind].outcome != LIMIT])
        self.print()

    def capture_anew(self, kinds):
        """Ingest a new snapshot, by a new connector, into new lake tables, as for tables of no flow."""
        prefix = f"{self.connector}_anew"
        sources = [source_of(self.kinds[kind], tables_of(self.kinds)[kind]) for kind in kinds]
        config = {
            **self.config,
            "topic.prefix": prefix,
            "table.include.list": ",".join(f"{self.schema}.{source}" for source in sources),
        }
        if self.db is postgres:
            config["slot.name"] += "_anew"
        else:
            config["database.server.id"] = str(int(config["database.server.id"]) + 1)
            config["schema.history.internal.kafka.topic"] = f"{prefix}.history"
        connect.apply(self.world, prefix, config)
        for kind, source in zip(kinds, sources):
            hudi.drop(self.spark, self.world, self.lake[kind])
            rows = self.db.query(
                self.world, f"SELECT count(*) AS n FROM {source}", database=self.database
            )
            topics.wait_for_messages(
                self.world,
                f"{prefix}.{self.schema}.{source}",
                int(rows.n[0]),
                timeout=300,
                connector=prefix,
            )
        self.look(kinds, prefix)

    def print(self):
        for kind, seen in self.seen.items():
            print(f"{kind}: {seen}")


@pytest.fixture(scope="module")
def postgres_lab(world, spark):
    included = ",".join(f"public.{t}" for t in (FENCE, *tables_of(POSTGRES).values()))
    script = "; ".join(begin(POSTGRES))
    with avro_help.museum(
        world,
        NAME,
        script,
        [FENCE, *tables_of(POSTGRES).values()],
        **{"table.include.list": included},
    ) as there:
        config = {**avro_help.source_config(there, NAME), "table.include.list": included}
        lab = Lab(there, spark, POSTGRES, postgres, None, "public", NAME, config)
        try:
            lab.walk()
            yield lab
        finally:
            clear(lab)


@pytest.fixture(scope="module")
def mariadb_lab(world, spark):
    name = f"{NAME}_wp"
    with mariadb_help.captured_database(world, name, *begin(MARIADB)) as there:
        included = ",".join(f"{name}.{t}" for t in (FENCE, *tables_of(MARIADB).values()))
        config = {**there.config, "table.include.list": included}
        connect.delete(world, name)
        topics.delete(world, *(t for t in topics.names(world) if t.startswith(name)))
        connect.apply(world, name, config)
        lab = Lab(world, spark, MARIADB, mariadb, name, name, name, config)
        try:
            lab.walk()
            yield lab
        finally:
            clear(lab)


def clear(lab):
    for name in connect.names(lab.world):
        if name.startswith(NAME):
            connect.delete(lab.world, name)
    for table in lab.lake.values():
        hudi.drop(lab.spark, lab.world, table)
    registry.delete(lab.world, *(a for a in registry.names(lab.world) if a.startswith(NAME)))


def judge(lab, kind):
    it, seen = lab.kinds[kind], lab.seen[kind]
    print(kind, seen)
    refused = any(said.startswith("refused") for said in seen)
    assert refused == it.is_refused, seen
    assert (
        len(seen)
        == {
            EQUAL: 2,
            AFTER_UPDATE: 3,
            AFTER_SNAPSHOT: 3 if refused else 4,
            LIMIT: 2 if refused else 3,
        }[it.outcome]
    ), seen
    assert (seen[-1] == "") == (it.outcome != LIMIT), seen
    if refused:
        assert "workbench recapture" in seen[1] or it.outcome == LIMIT, seen


@pytest.mark.parametrize("kind", POSTGRES)
def test_a_migration_of_postgresql(postgres_lab, kind):
    judge(postgres_lab, kind)


@pytest.mark.parametrize("kind", MARIADB)
def test_a_migration_of_mariadb(mariadb_lab, kind):
    judge(mariadb_lab, kind)


def test_there_are_fifty_kinds():
    assert len(POSTGRES) + len(MARIADB) >= 50
