"""Trino's expressions on the real Spark: the documented result, or a refusal; none is answered otherwise."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from test_athena import said, same
from workbench import query
from workbench.base import LakeError

LINE = re.compile(r"(.*?)  (--|!!) ?(.*)")
TEXT = Path(__file__).with_name("trino_expressions.txt").read_text(encoding="utf-8")
LINES = [
    match.groups()
    for line in TEXT.splitlines()
    if not line.startswith("#") and (match := LINE.fullmatch(line))
]


def fault(spark, text, kind, expected):
    """What is wrong with the answer to an expression; empty if nothing is."""
    try:
        answer = said(query.sql(spark, f"SELECT {text}"))
    except LakeError as e:
        if kind == "!!" and re.search(expected, str(e), re.I):
            return ""
        return f"{text}\n  documented: {kind} {expected}\n  refused: {str(e)[:300]}"
    if kind == "--" and same(answer, expected):
        return ""
    return f"{text}\n  documented: {kind} {expected}\n  answered: {answer}"


def test_an_expression_has_its_documented_result_or_is_refused(spark):
    """Expressions of one row are asked for together: Spark takes longer to begin than to answer."""
    assert len(LINES) >= 250
    joined = [
        line for line in LINES if line[1] == "--" and not re.search(r"\b(FROM|UNION)\b", line[0])
    ]
    batches = [joined[n : n + 10] for n in range(0, len(joined), 10)]
    batches += [[line] for line in LINES if line not in joined]

    def ask(batch):
        texts, kinds, results = zip(*batch)
        found = fault(spark, ", ".join(texts), kinds[0], " | ".join(results))
        if found and len(batch) > 1:  # which of them?
            return [fault(spark, *line) for line in batch]
        return [found]

    with ThreadPoolExecutor(4) as pool:
        faults = [found for each in pool.map(ask, batches) for found in each if found]
    assert not faults, "\n".join(faults)
