"""The promise of `workbench source check` as a property of random schemas.

A table is either refused: its check is red, and `capture` refuses it. Or it is captured, an application
changes it a hundred times without an error, and then Spark and hudi-rs find what the source has, by the
rules of docs/types.md. `compare` and `reconcile` have to agree with them.

A violation names its seed. `WORKBENCH_PROMISE_SEED` and `WORKBENCH_PROMISE_SCHEMAS` choose others.
"""

import contextlib
import io
import os
import traceback
from collections import Counter
from dataclasses import dataclass, field

import own_help
import own_schemas
import own_schemas_mariadb
import psycopg
import pymysql
import pytest
from own_schemas import PER_FLOW, Options, Schema
from own_schemas_mariadb import MariaSchema
from pyspark.sql import functions as F
from test_types import as_number
from workbench import hudi, operate, own, stack
from workbench.base.errors import CheckFailed, WorkbenchError
from workbench.source import readiness

PORT = int(os.environ["WORKBENCH_PORT_BASE"]) + 160
CHANGES = 100
FIXED = {  # of our own sessions, whatever is set for the database
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "default_transaction_read_only": "off",
    "default_transaction_isolation": "read\\ committed",
    "search_path": "public",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "transform_null_equals": "off",
}
APPLICATION = "app"
# A large value that the connector could not read from the row, because the commit was not visible yet.
UNREAD = "could not be read from the row"


@dataclass
class Outcome:
    """What became of the schemas."""

    violations: list = field(default_factory=list)
    counts: Counter = field(default_factory=Counter)
    refusals: Counter = field(default_factory=Counter)

    def violate(self, schema, what):
        ddl = "; ".join(schema.ddl)
        options = vars(schema.options)
        self.violations.append(f"seed {schema.seed}: {what}\n    {ddl}\n    {options}")
        self.counts["violations"] += 1
        print("VIOLATION", self.violations[-1], flush=True)


class Lab:
    """A flow of tables in a database of its own; a subclass knows the server."""

    def __init__(self, world, spark, flow, schemas, outcome):
        self.spark, self.schemas, self.outcome = spark, schemas, outcome
        self.name = f"promise{flow}"
        self.world = self.with_database(world)
        self.calls, self.settings = own_schemas.flow_options(self.engine, flow)

    def create_tables(self, c):
        """Create the tables; one whose DDL the server rejects is no schema."""
        for schema in [*self.schemas]:
            try:
                for statement in schema.ddl:
                    c.execute(statement)
            except (psycopg.Error, pymysql.Error) as e:
                self.outcome.counts["not a schema"] += 1
                print(f"seed {schema.seed} is no schema: {e}", flush=True)
                self.schemas.remove(schema)

    def fill(self, c):
        for schema in self.schemas:
            for _ in range(schema.random.choice([0, 3, 12])):
                self.apply(c, schema, [schema.insert()])

    def apply(self, c, schema, statements):
        """Run a transaction; what the application itself does wrong rolls it back."""
        try:
            self.run_transaction(c, statements)
            self.outcome.counts["transactions"] += 1
        except (psycopg.Error, pymysql.Error) as e:
            if not self.is_legitimate(e):
                raise RuntimeError(f"{e!r}: {'; '.join(statements)[:600]}") from e
            self.outcome.counts["rejected"] += 1

    def drop_blocking_tables(self):
        """Drop the tables at which each snapshot of the database stops; `capture` must refuse any other table."""
        for schema in [*self.schemas]:
            report = readiness.check(self.world, "bikes", [schema.source])
            others = report.tables[report.tables["item"] != f"table {schema.source}"]
            for item, problem in others[["item", "problem"]].itertuples(index=False):
                try:
                    self.run_capture([schema], Options())
                    self.outcome.violate(
                        schema, f"{item} is red: {problem}; capture accepts the table"
                    )
                except WorkbenchError as e:
                    if item not in str(e):
                        self.outcome.violate(schema, f"{item} is red: {problem}; capture says {e}")
                self.outcome.counts["stops each snapshot"] += 1
                blocking = next(s for s in self.schemas if item == f"table {s.source}")
                self.schemas.remove(blocking)
                with self.login() as c:
                    c.execute(f"DROP TABLE {schema.quoted(blocking.name)}")

    def capture(self):
        """Capture the tables whose check is green; return them."""
        self.drop_blocking_tables()
        captured = []
        for number, options in enumerate(self.calls):
            group, green = [s for s in self.schemas if s.call == number], []
            report = readiness.check(
                self.world, "bikes", [s.source for s in group], readiness.Options(key=options.key)
            )
            obstacles = [*report.server[report.server["problem"] != ""]["problem"]]
            assert not obstacles, obstacles
            problems = dict(zip(report.tables["item"], report.tables["problem"]))
            for schema in group:
                problem = problems[f"table {schema.source}"]
                if not problem:
                    green.append(schema)
                    continue
                self.outcome.counts["red"] += 1
                self.outcome.refusals[problem] += 1
                try:
                    self.run_capture([schema], options)
                    self.outcome.violate(schema, f"the check is red, capture accepts it: {problem}")
                    own.forget(self.world, self.name, schema.source)
                except WorkbenchError as e:
                    if problem.split("; ")[0] not in str(e):
                        self.outcome.violate(schema, f"check says {problem!r}, capture says {e}")
            captured += self.capture_group(green, options)
        return captured

    def run_capture(self, group, options):
        with quiet():
            own.capture(
                self.world,
                "bikes",
                *(s.source for s in group),
                flow=self.name,
                type=options.type,
                partition=[options.partition] if options.partition else [],
                key=options.key,
                progress=lambda line: None,
            )

    def capture_group(self, group, options):
        """Capture tables in one call; a table that is refused leaves the group."""
        while group:
            try:
                self.run_capture(group, options)
                return group
            except Exception as e:  # noqa: BLE001 - each kind of error is a violation
                named = group[0] if len(group) == 1 else named_schema(group, str(e))
                if not named:  # the error does not say which one it is
                    for schema in group:
                        self.leave(schema)
                    half = len(group) // 2
                    return [
                        schema
                        for part in (group[:half], group[half:])
                        for schema in self.capture_group(part, options)
                    ]
                if options.partition and options.partition in str(e) and "partition" in str(e):
                    self.outcome.counts["refused partition"] += 1
                    self.outcome.refusals[
                        f"partition by {named.column(options.partition).kind.name}"
                    ] += 1
                else:
                    self.outcome.violate(named, f"the check is green, capture says {e}")
                group = [s for s in group if s is not named]
                self.leave(named)
        return []

    def leave(self, schema):
        """Remove a table from the flow, if it got into it."""
        if self.name in own.names(self.world):
            with contextlib.suppress(WorkbenchError):
                own.forget(self.world, self.name, schema.source)

    def change(self, captured, changes=CHANGES):
        """Let an application change the tables; return those that it could change."""
        changed = []
        with self.login(APPLICATION) as c, self.login() as owner:
            for schema in captured:
                try:
                    for _ in range(changes):
                        statements = schema.transaction(hostile=0.04)
                        if statements[0].startswith("--owner "):
                            owner.execute(statements[0].removeprefix("--owner "))
                        else:
                            self.apply(c, schema, statements)
                    changed.append(schema)
                except RuntimeError as e:
                    self.outcome.violate(schema, f"the application gets {e}")
                    self.leave(schema)
        return changed

    def scales(self, schema):
        flow = own.load(self.world, self.name)
        return next(t.scales for t in flow.declared.tables if t.source == schema.source)

    def refused(self, schema):
        """Return the columns with values of the source that docs/types.md makes dead letters."""
        scales = self.scales(schema)
        return [
            c
            for c in schema.columns
            if any(
                own_schemas.is_refused(c, row[c.name], scales.get(c.name, 10))
                for row in self.rows(schema)
            )
        ]

    def follow(self, captured):
        """Follow; what stops it must be a dead letter that docs/types.md has."""
        refused = {s.source: columns for s in captured if (columns := self.refused(s))}
        captured, corrected = [*captured], []
        for _ in range(2 * len(captured) + 1):
            try:
                own.follow(self.world, self.name, progress=lambda line: None)
                break
            except WorkbenchError as e:
                text = f"{e}"
                schema = named_schema(captured, text, self.lake_name)
                if not schema:
                    raise
                is_unread = UNREAD in text  # a dead letter, never the placeholder
                self.outcome.counts["not read in time"] += is_unread
                if refused.get(schema.source) or (is_unread and refused):
                    self.outcome.counts["with dead letters"] += 1
                    for each in captured:
                        if columns := refused.pop(each.source, None):
                            self.correct(each, columns)
                            corrected.append(each)
                if is_unread:  # the next change of a row has all its values
                    with self.login() as c:
                        for each in captured:
                            c.execute(f"UPDATE {each.quoted(each.name)} SET n = n")
                elif schema not in corrected or "could not be decoded" not in text:
                    self.outcome.violate(schema, f"follow says {text[:1500]}")
                    self.leave(schema)
                    captured.remove(schema)
        else:
            self.outcome.violate(captured[0], "follow stops again and again")
        for schema in captured:
            table = own.load(self.world, self.name).table(self.world, self.lake_name(schema))
            if schema.source in refused or (
                schema in corrected and not hudi.dead_letters(self.spark, self.world, table).take(1)
            ):
                self.outcome.violate(schema, "a value that docs/types.md refuses is no dead letter")
        return captured

    def lake_name(self, schema):
        flow = own.load(self.world, self.name)
        return next(t.name for t in flow.declared.tables if t.source == schema.source)

    def verify(self, captured):
        """Compare the source with what Spark and hudi-rs read, then ask `compare` and `reconcile`."""
        differing = {}
        for schema in captured:
            flow = own.load(self.world, self.name)
            table = flow.table(self.world, self.lake_name(schema))
            rows = self.rows(schema)
            truth = [{c.name: self.wanted(c, row[c.name]) for c in schema.columns} for row in rows]
            readers = {"Spark": lambda t: spark_rows(self.spark, t), "hudi-rs": arrow_rows}
            for reader, read in readers.items():
                try:
                    seen = read(table) if rows or hudi.exists(table) else []
                    found = own_schemas.differences(schema, truth, seen)
                except Exception as e:  # noqa: BLE001 - a reader's error is the violation
                    found = [f"{type(e).__name__}: {e}"[:600]]
                if found:
                    differing[schema.source] = True
                    what = "\n        ".join(found[:6])
                    self.outcome.violate(schema, f"{reader} ({table.type}), {len(found)}: {what}")
        try:
            with quiet():
                own.compare(self.world, self.name)
            if differing:
                print("compare is green, although the lake differs:", *differing, flush=True)
        except (CheckFailed, WorkbenchError) as e:
            if not differing:
                schema = named_schema(captured, str(e)) or captured[0]
                self.outcome.violate(schema, f"compare says {str(e)[:1500]}")
        for schema in captured:
            try:
                (result,) = operate.reconcile(self.world, self.name, self.lake_name(schema))
                if result.is_equal == (schema.source in differing):
                    self.outcome.violate(schema, f"reconcile says {result!r}")
            except Exception as e:  # noqa: BLE001
                self.outcome.violate(schema, f"reconcile fails: {type(e).__name__} {str(e)[:800]}")
        self.outcome.counts["kept"] += len(captured) - len(differing)


class PostgresLab(Lab):
    """A flow of PostgreSQL."""

    engine = "postgres"

    def with_database(self, world):
        self.port = world.source("bikes").postgres.port
        return own_help.with_source(world, port=self.port, database=self.name)

    def login(self, user=own_help.USER, database=None):
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=user,
            password="their-own-password",
            dbname=database or self.name,
            autocommit=True,
            options=" ".join(f"-c {name}={value}" for name, value in FIXED.items()),
        )

    def create(self):
        with self.login(database="postgres") as c:
            c.execute(f"CREATE DATABASE {self.name}")
            c.execute(
                f"DO $$ BEGIN CREATE ROLE {APPLICATION} LOGIN PASSWORD 'their-own-password'; "
                "EXCEPTION WHEN duplicate_object THEN NULL; END $$"
            )
        with self.login() as c:
            c.execute(own_schemas.TYPE_DDL)
            self.create_tables(c)
            c.execute(
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {APPLICATION}"
            )
            self.fill(c)
            for name, value in self.settings.items():
                c.execute(f"ALTER DATABASE {self.name} SET {name} = '{value}'")
        print(self.name, self.settings, flush=True)

    def run_transaction(self, c, statements):
        with c.transaction():
            for statement in statements:
                c.execute(statement)

    def is_legitimate(self, error):
        """Return whether an error is the application's own mistake: constraints, numbers out of range."""
        return (error.sqlstate or "").startswith("23") or error.sqlstate in ("22003", "22008")

    def rows(self, schema):
        """Return the rows of the source: {column: PostgreSQL's text}."""
        names = [c.name for c in schema.columns]
        with self.login() as c:
            found = c.execute(own_schemas.select(schema, schema.columns)).fetchall()
        return [dict(zip(names, row)) for row in found]

    wanted = staticmethod(own_schemas.wanted)

    def correct(self, schema, columns):
        """Correct the values that cannot be in the lake, and no other row."""
        table, place = schema.quoted(schema.name), "tableoid::text, ctid::text"
        scales = self.scales(schema)
        with self.login(APPLICATION) as c:
            for column in columns:
                query = own_schemas.select(schema, [column]).replace(
                    "SELECT ", f"SELECT {place}, ", 1
                )
                for root, row, text in c.execute(query).fetchall():
                    if own_schemas.is_refused(column, text, scales.get(column.name, 10)):
                        c.execute(
                            f"UPDATE {table} SET {schema.quoted(column.name)} = {column.kind.accepted[0]} "
                            "WHERE tableoid = %s::oid AND ctid = %s::tid",
                            [root, row],
                        )

    def remove(self):
        if self.name in own.names(self.world):
            own.forget(self.world, self.name)
        with self.login(database="postgres") as c:
            c.execute(f"DROP DATABASE {self.name} WITH (FORCE)")


class MariaLab(Lab):
    """A flow of MariaDB, on the stack's server."""

    engine = "mariadb"

    def with_database(self, world):
        server = world.base.mysql
        return own_help.with_source(
            world,
            engine="mariadb",
            port=server.port,
            database=self.name,
            user=server.admin_user,
            password=server.admin_password,
        )

    @contextlib.contextmanager
    def login(self, user="", database=None):
        at = self.world.source("bikes")
        password = "their-own-password" if user else at.mysql.admin_password.reveal()
        with pymysql.connect(
            host="127.0.0.1",
            port=at.mysql.port,
            user=user or at.mysql.admin_user,
            password=password,
            database=self.name if database is None else database or None,
            autocommit=True,
            charset="utf8mb4",
            conv={},
            init_command="SET time_zone = '+00:00'",
        ) as connection:
            yield connection.cursor()

    def create(self):
        for schema in self.schemas:
            schema.schema = self.name
        with self.login(database="") as c:
            c.execute(f"CREATE DATABASE {self.name} CHARACTER SET utf8mb4")
            c.execute(
                f"CREATE USER IF NOT EXISTS {APPLICATION}@'%' IDENTIFIED BY 'their-own-password'"
            )
            c.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {self.name}.* TO {APPLICATION}@'%'")
        with self.login() as c:
            self.create_tables(c)
            self.fill(c)

    def run_transaction(self, c, statements):
        c.execute("START TRANSACTION")
        try:
            for statement in statements:
                c.execute(statement)
        except pymysql.Error:
            c.execute("ROLLBACK")
            raise
        c.execute("COMMIT")

    def is_legitimate(self, error):
        """Return whether an error is the application's own mistake: constraints, numbers out of range."""
        return error.args[0] in (1062, 1264, 1406, 1452, 1690, 1048, 1292, 1365, 1441)

    def rows(self, schema):
        """Return the rows of the source: {column: MariaDB's text}."""
        names = [c.name for c in schema.columns]
        with self.login() as c:
            c.execute(own_schemas_mariadb.select(schema, schema.columns))
            found = c.fetchall()
        return [dict(zip(names, map(as_text, row))) for row in found]

    wanted = staticmethod(own_schemas_mariadb.wanted)

    def remove(self):
        if self.name in own.names(self.world):
            own.forget(self.world, self.name)
        with self.login(database="") as c:
            c.execute(f"DROP DATABASE {self.name}")
            c.execute(f"DROP USER IF EXISTS {APPLICATION}@'%'")


def named_schema(schemas, text, name=lambda schema: schema.source):
    """Return the schema with the longest name that a text has, or None."""
    named = [s for s in schemas if s.source in text or name(s) in text]
    return max(named, key=lambda s: len(s.name), default=None)


def as_text(value):
    return value.decode() if isinstance(value, bytes) else value


def quiet():
    """Return a context in which checks are not shown."""
    return contextlib.redirect_stdout(io.StringIO())


def spark_rows(spark, table):
    rows = hudi.read(spark, table)
    columns = [as_number(F.col(f"`{f.name}`"), f.dataType).alias(f.name) for f in rows.schema]
    return [
        {name.lower(): own_schemas.canonical(value) for name, value in row.asDict().items()}
        for row in rows.select(*columns).collect()
    ]


def arrow_rows(table):
    return [
        {name.lower(): own_schemas.canonical(value) for name, value in row.items()}
        for row in hudi.reading.read_arrow(table).to_pylist()
    ]


ENGINES = {"postgres": (Schema, PostgresLab), "mariadb": (MariaSchema, MariaLab)}


def run(world, spark, engine, seeds):
    """Try the schemas of the seeds; return the Outcome.

    Args:
        world: a world with the source `bikes`.
        spark: the session.
        engine: "postgres" or "mariadb".
        seeds: the seeds.
    """
    outcome, flows = Outcome(), {}
    schema_class, lab_class = ENGINES[engine]
    for seed in seeds:
        flows.setdefault(seed // PER_FLOW, []).append(schema_class(seed))
    for flow, schemas in flows.items():
        outcome.counts["schemas"] += len(schemas)
        lab = lab_class(world, spark, flow, schemas, outcome)
        try:
            lab.create()
            captured = lab.capture()
            if captured:
                captured = lab.change(captured)
                captured = lab.follow(captured)
                lab.verify(captured)
        except Exception as e:  # noqa: BLE001 - the other flows are tried, too
            traceback.print_exc()
            outcome.violations.append(f"flow {flow}: {type(e).__name__}: {e}")
        finally:
            lab.remove()
        print(dict(outcome.counts), flush=True)
    return outcome


def require_kept(outcome, schemas):
    """Raise AssertionError for a violation, and if most schemas were not tried at all."""
    print(outcome.counts, outcome.refusals)
    assert not outcome.violations, "\n".join(outcome.violations)
    assert outcome.counts["kept"] >= len(schemas) / 5, outcome.counts
    assert outcome.counts["transactions"] >= 10 * len(schemas), outcome.counts


def drill(count):
    """Return the parameter of a drill, with the seeds that the environment chooses."""
    first = int(os.environ.get("WORKBENCH_PROMISE_SEED", "0"))
    chosen = range(first, first + int(os.environ.get("WORKBENCH_PROMISE_SCHEMAS", count)))
    return pytest.param(chosen, marks=pytest.mark.drill, id="drill")


@pytest.mark.parametrize("seeds", [pytest.param(range(14), id="14"), drill(300)])
def test_postgres(world, spark, seeds):
    with own_help.postgres_server(world, PORT) as changed:
        require_kept(run(changed, spark, "postgres", seeds), seeds)


@pytest.mark.parametrize("seeds", [pytest.param(range(6), id="6"), drill(100)])
def test_mariadb(world, spark, seeds):
    stack.ensure_running(world, "mariadb")
    require_kept(run(world, spark, "mariadb", seeds), seeds)
