"""Files of rows before they are loaded: headers of CSV files, the blocks of a dump, missing files."""

import pytest
from workbench.base import params
from workbench.base.errors import SourceError
from workbench.source import row_files
from workbench.tracks import moma, northwind, pagila

TYPES = {"id": "integer PRIMARY KEY", "Height (cm)": "numeric"}


@pytest.fixture
def written(tmp_path):
    """Return a function that writes a file."""

    def write(text, encoding="utf-8"):
        path = tmp_path / "rows.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        return path

    return write


@pytest.mark.parametrize(
    "text, columns",
    [
        ('id,x,"Height (cm)"\r\n1,2,3\r\n', ("id", "x", "Height (cm)")),
        ("\ufeffHeight (cm),id\n", ("Height (cm)", "id")),
        ("id,Height (cm)", ("id", "Height (cm)")),
    ],
)
def test_the_columns_of_a_file_are_those_of_its_header(written, text, columns):
    path = written(text)
    rows = row_files.csv_rows(path, "t", types=TYPES)
    assert (rows.table, rows.columns, rows.types) == ("t", columns, TYPES)
    assert rows.data == path.read_bytes() and rows.lines_before == 0


@pytest.mark.parametrize(
    "text, seen",
    [
        (b"", "line 1: \n"),
        (b"\r\n\r\n", "line 1: \n"),
        (b"id;Height (cm)\n", "line 1: id;Height"),
        (b"id\tHeight (cm)\n", "line 1: id\t"),
        (b"id,height\n", r"'Height \(cm\)' is missing(?s:.*)did you mean 'height'"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:fc8c\n", "line 1: version https://git-lfs"),
        ("id,Height".encode("utf-16"), "is missing"),
    ],
)  # fmt: skip
def test_a_header_without_a_column_is_refused_and_shown(written, text, seen):
    with pytest.raises(SourceError, match=seen) as e:
        row_files.csv_rows(written(text), "t", types=TYPES)
    assert "rows.csv, line 1" in e.value.location and "nothing was changed" in e.value.hint


def test_a_line_at_which_copy_would_stop_is_refused(written):
    with pytest.raises(SourceError, match=r"a line is \\\.(?s:.*)line 3"):
        row_files.csv_rows(written("id\n1\n\\.\r\n2\n"), "t")
    assert row_files.csv_rows(written("id,a\n1,\\.\n"), "t").columns == ("id", "a")


DUMP = """\
SET x = 1;
ALTER TABLE public.b DISABLE TRIGGER ALL;
COPY public.b (b_id, "text") FROM stdin;
1\t\\N
2\ta\\tb\\\\
\\.
COPY public.other (x) FROM stdin;
DROP TABLE a;
\\.
COPY a (a_id) FROM stdin;
\\.
SELECT pg_catalog.setval('public.b_b_id_seq', 2, true);
"""


@pytest.mark.parametrize("text", [DUMP, "\ufeff" + DUMP, DUMP.replace("\n", "\r\n")])
def test_blocks_of_a_dump(written, text):
    path = written(text)
    a, b = row_files.dump_rows(path, ["a", "b"])
    assert (a.table, a.columns, a.data) == ("a", ("a_id",), b"")
    assert (b.table, b.columns, b.path, b.lines_before) == ("b", ("b_id", "text"), path, 3)
    assert b.data == b"1\t\\N\n2\ta\\tb\\\\\n"


@pytest.mark.parametrize(
    "text, says",
    [
        (DUMP.replace("COPY a (a_id) FROM stdin;\n\\.\n", ""), "no rows of a\n"),
        ("INSERT INTO a VALUES (1);", "(?s)no rows of a, b.*without --inserts"),
        (DUMP[: DUMP.index("2\ta")], r"(?s)no rows of a, b.*a line \\\. at their end"),
        (DUMP[: DUMP.rindex("\\.")], r"no rows of a\n"),
        (DUMP + DUMP, "(?s)table b occurs twice.*line 15"),
        ("", "no rows of a, b"),
    ],
)
def test_a_bad_dump(written, text, says):
    with pytest.raises(SourceError, match=says):
        row_files.dump_rows(written(text), ["a", "b"])


def test_a_file_that_cannot_be_read(tmp_path):
    for read in (row_files.csv_rows, row_files.dump_rows):
        with pytest.raises(SourceError, match=f"cannot be read(?s:.*){tmp_path}"):
            read(tmp_path, "t")


@pytest.mark.parametrize(
    "loader, names",
    [
        (moma.loader, ("Artists.csv", "Artworks.csv")),
        (northwind.loader, ("northwind.sql",)),
        (pagila.loader, (pagila.DUMP,)),
    ]
)  # fmt: skip
def test_a_missing_file_is_named_and_a_packed_one_is_to_be_unpacked(tmp_path, loader, names):
    for name in names:
        (tmp_path / f"{name}.xz").touch()
        with pytest.raises(SourceError, match=f"(?s){name} does not exist.*unpack {name}.xz"):
            loader.validate(params.load("local"), from_dir=str(tmp_path))
        (tmp_path / name).touch()
