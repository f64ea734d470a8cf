"""The columns that a capture, an ingest and Hudi add to those of the source. Readers of the lake hide them by name."""

# Column of a table that is ordered by several fields: their values as one text.
COMBINED_ORDERING_COLUMN = "__position"
# Column of a table with `encodes_key`: the values of its key as the text of a JSON object.
ENCODED_KEY_COLUMN = "__key"
# The columns that an ingest adds to those of the source.
DERIVED_COLUMNS = (COMBINED_ORDERING_COLUMN, ENCODED_KEY_COLUMN)
# Prefix of Hudi's columns.
HUDI = "_hoodie_"
# Fields of Debezium's envelope and of its block `source`, which a connector can add to a row
ENVELOPE_FIELDS = "op ts_ms ts_us ts_ns transaction_id".split()
SOURCE_FIELDS = (
    "version connector name ts_ms ts_us ts_ns snapshot db schema table sequence txId lsn xmin server_id "
    "gtid file pos row thread query"
).split()
# The columns that a capture or an ingest adds to those of the source.
ADDED_COLUMNS = frozenset(
    {
        *DERIVED_COLUMNS,
        "__deleted",
        *(f"__{name}" for name in (*ENVELOPE_FIELDS, *SOURCE_FIELDS)),
        *(f"__source_{name}" for name in SOURCE_FIELDS),
    }
)
# Spark's names of columns do not differ in case.
_FOLDED = frozenset(name.lower() for name in ADDED_COLUMNS)


def is_reserved(name: str) -> bool:
    """Return whether a column of the source cannot have this name, because the lake may add such a column."""
    folded = name.lower()
    return folded in _FOLDED or folded.startswith(HUDI)


def is_data(name: str) -> bool:
    """Return whether a column of the lake is one of the source: neither Hudi nor the capture adds it."""
    return name not in ADDED_COLUMNS and not name.startswith(HUDI)
