"""Breaks for the checks of notebook 86; breaking.py describes breaks."""

from breaking import Break, Run

# one more message of each kind than the notebook has made
ONE_MORE = """change("UPDATE payments SET note = 'one more' WHERE id = 50")"""
EXTEND = """
contract["channel"] = "string"
registry.register(world, accepted, registry.latest(world, captured))"""
AGAIN = """
registry.delete(world, accepted)
for _schema in registry.versions(world, captured)[:2]:
    registry.register(world, accepted, _schema)
registry.set_compatibility(world, accepted, "BACKWARD")"""
AGREES = """
_compare = avro.check_compatibility
avro.check_compatibility = lambda *_: \"\""""


def _counts(step: str) -> tuple[str, str]:
    return f"{step}: messages at the gate", f"{step}: messages after the decision"


SCHEMA_DRIFT = [
    Run(
        *(
            Break(f'run_pipeline("{step}")', code, dict.fromkeys(_counts(step), "gate"))
            for step, code in {
                "column added": ONE_MORE,
                "column renamed": ONE_MORE,
                "column narrowed": ONE_MORE,
                "value added": """change("UPDATE payments SET status = 'disputed' WHERE id = 50")""",
            }.items()
        ),
        Break(
            '"the registry refuses the renamed column"',
            'registry.set_compatibility(world, accepted, "NONE")',
            {"the registry refuses the renamed column": "no failure"},
            undo=AGAIN,
        ),
        Break(
            'alarms["column renamed"] = alarm("column renamed")',
            AGREES,
            {"answers of the registry": "column renamed"},
            undo="avro.check_compatibility = _compare",
        ),
        Break(
            "first_contract = set(columns_of(first_schema))",
            """
postgres.execute(world, "ALTER TABLE payments ADD COLUMN extra text", database=database)
postgres.execute(world, "ALTER TABLE payments ALTER amount TYPE numeric(9, 2)", database=database)""",
            {
                "alarm at the added column": "extra",
                "alarm at the renamed column": "extra",
                "alarm at the narrowed column": "(9,2)",
            },
            undo="""
postgres.execute(world, "ALTER TABLE payments DROP COLUMN extra", database=database)""",
        ),
        Break(
            "changes = {",
            """
change("UPDATE payments SET status = 'unknown' WHERE id = 60")
gate()""",
            {"messages that still wait": "1", "payments = source, row by row": "id=60"},
        ),
        Break(
            "by_registry = {",
            'contract["amount"] = "decimal(13,2) NOT NULL"',
            {"type of the amount": "(13,2)"},
        ),
    ),
    Run(
        Break(
            'run_pipeline("column added")',
            EXTEND,
            {"the lake had no column before the decision": "no"},
            also_red=_counts("column added"),
        ),
        Break(
            'alarms["column narrowed"] = alarm("column narrowed")',
            'contract["amount"] = "decimal(8,2) NOT NULL"',
            {"changes that the contract stops": "column narrowed"},
            also_red=(
                *_counts("column narrowed"),
                "alarm at the narrowed column",
                "type of the amount",
            ),
        ),
        Break(
            'run_pipeline("value added")',
            'allowed["status"].add("disputed")',
            {"rows with the new value before the decision": "lake"},
            also_red=_counts("value added"),
        ),
    ),
]
BREAKS = {"86_schema_drift": SCHEMA_DRIFT}
