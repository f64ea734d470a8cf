"""docs/types.md says what the test of all types holds the lake to."""

import pg_types
from workbench.base import paths


def test_the_tables_of_the_page_are_those_of_the_test():
    lines = (paths.ROOT / "docs" / "types.md").read_text(encoding="utf-8").splitlines()
    heads = [n for n, line in enumerate(lines) if line.startswith("|---")]
    shown = []
    for head in heads:
        rows = []
        for line in lines[head + 1 :]:
            if not line.startswith("|"):
                break
            rows.append(line)
        shown.append(rows)
    # the first one lists `types`, the last one what the check of MariaDB accepts
    assert shown[1:-1] == list(pg_types.doc_tables())


def test_days_and_times():
    assert [
        pg_types.days(d)
        for d in ("1970-01-01", "2001-02-03", "0001-01-01", "9999-12-31", "0044-03-15 BC")
    ] == [0, 11356, -719162, 2932896, -735160]
    assert (
        pg_types.to_utc("00:30:00+05:30") == "19:00:00Z"
        and pg_types.to_utc("10:00:00.5-08") == "18:00:00.500000Z"
    )
    assert (
        pg_types.duration("P1Y2M3DT4H5M6.789S") == 37091106789000
        and pg_types.bits("1010101010") == "qgI="
    )
