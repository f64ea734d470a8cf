"""What changed between two runs: twenty seeded regressions are named, two equal runs give nothing."""

import copy
import json

import pytest
from run_records import record, runs_folder, workbench
from workbench.checks import check
from workbench.run import comparison, history

runs = pytest.fixture(runs_folder)
PATH = "10_outbox/15_dashboard.ipynb"
BEFORE, AFTER = "20260101-030000-local", "20260102-030000-local"


def line(what, left, right, ok=True, labels=("lake", "source")):
    return {
        "ok": ok,
        "what": what,
        "left": left,
        "right": right,
        "left_label": labels[0],
        "right_label": labels[1],
        "detail": "",
    }


def notebook(path, seconds, *checks):
    entry = {"path": path, "title": "T", "promise": "P", "status": "passed", "seconds": seconds}
    return {**entry, "checks": list(checks)}


VALUE = ("value", "tolerance")
RUN = {
    "parameters": {"day": "2026-01-01", "limit": 5},
    "commit": "abc1234",
    "versions": {"Python": "3.11.7", "hudi": "1.0.2"},
    "world_values": [["lake.root", "/lake"]],
    "seconds": 60.0,
    "notebooks": [
        notebook("10_outbox/11_source_database.ipynb", 2.0, line("orders", "829", "829")),
        notebook(
            PATH,
            20.0,
            line("orders", "829", "829"),
            line("arrives", "after 3.1 s", "within 60 s", labels=("actual", "expected")),
            line("messages", "45", "more than 0", labels=("actual", "expected")),
            line("revenue", "1,000.5 EUR", "0.5 %", labels=VALUE),
            line("visitors", "80", "any", labels=VALUE),
            line("orders", "830", "830"),
        ),
    ],
}


def checks(run):
    return run["notebooks"][1]["checks"]


def fail(run):
    run["notebooks"][1]["status"] = "failed"
    checks(run)[0].update(ok=False, left="828")
    del checks(run)[1:]


# {regression: (how a run gets it, what is named, whether it is an alarm)}
REGRESSIONS = {
    "a check is red": (
        lambda run: checks(run)[0].update(ok=False, left="828"),
        f"{PATH}: orders: 829 → red",
        True,
    ),
    "a check differs on own data": (
        lambda run: checks(run)[0].update(ok=None, left="828"),
        f"{PATH}: orders: 829 → differs",
        False,
    ),
    "a check is gone": (
        lambda run: checks(run).pop(1),
        f"{PATH}: arrives: green → not there",
        True,
    ),
    "a repeated check is gone": (
        lambda run: checks(run).pop(),
        f"{PATH}: orders (2): 830 → not there",
        True,
    ),
    "a check is new": (
        lambda run: checks(run).append(line("new", "1", "1")),
        f"{PATH}: new: not there → 1",
        False,
    ),
    "source and lake lost rows": (
        lambda run: checks(run)[0].update(left="800", right="800"),
        f"{PATH}: orders: 829 → 800 (-3.50%)",
        False,
    ),
    "the second of two checks moved": (
        lambda run: checks(run)[5].update(left="831", right="831"),
        f"{PATH}: orders (2): 830 → 831 (+0.12%)",
        False,
    ),
    "a figure moved by 1 %": (
        lambda run: checks(run)[3].update(left="990.495 EUR"),
        f"{PATH}: revenue: 1,000.5 EUR → 990.495 EUR (-1.00%)",
        True,
    ),
    "a figure moved within its tolerance": (
        lambda run: checks(run)[3].update(left="1,001 EUR"),
        f"{PATH}: revenue: 1,000.5 EUR → 1,001 EUR (+0.05%)",
        False,
    ),
    "a figure without tolerance moved": (
        lambda run: checks(run)[4].update(left="8"),
        f"{PATH}: visitors: 80 → 8 (-90.00%)",
        False,
    ),
    "a figure is new": (
        lambda run: checks(run).append(line("returns", "7", "1 %", labels=VALUE)),
        f"{PATH}: returns: not there → 7",
        False,
    ),
    "a figure is zero": (
        lambda run: checks(run)[3].update(left="0 EUR"),
        f"{PATH}: revenue: 1,000.5 EUR → 0 EUR (-100.00%)",
        True,
    ),
    "a notebook failed": (fail, f"{PATH}: status: passed → failed", True),
    "a notebook was skipped": (
        lambda run: run["notebooks"][1].update(status="skipped", checks=[]),
        f"{PATH}: status: passed → skipped",
        True,
    ),
    "a notebook is gone": (
        lambda run: run["notebooks"].pop(),
        f"{PATH}: status: passed → not there",
        True,
    ),
    "a notebook is new": (
        lambda run: run["notebooks"].append(notebook("20_x/21_y.ipynb", 1.0)),
        "20_x/21_y.ipynb: status: not there → passed",
        False,
    ),
    "a notebook is three times slower": (
        lambda run: run["notebooks"][1].update(seconds=60.0),
        f"{PATH}: seconds: 20.0 → 60.0 (+200.00%)",
        True,
    ),
    "a package has another version": (
        lambda run: run["versions"].update(hudi="1.1.1"),
        "run: version hudi: 1.0.2 → 1.1.1",
        False,
    ),
    "another commit": (
        lambda run: run.update(commit="def5678"),
        "run: commit: abc1234 → def5678",
        False,
    ),
    "another parameter": (
        lambda run: run["parameters"].update(limit=6),
        "run: parameter limit: 5 → 6",
        False,
    ),
    "another setting of the world": (
        lambda run: run.update(world_values=[["lake.root", "/other"]]),
        "run: setting of the world lake.root: /lake → /other",
        False,
    ),
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_a_regression_is_named(runs, name):
    change, expected, is_alarm = REGRESSIONS[name]
    later = copy.deepcopy(RUN)
    change(later)
    for day in ("20251231-030000-local", BEFORE):
        record(runs, day, **RUN)
    record(runs, AFTER, **later)
    shown = workbench("diff", BEFORE, AFTER)
    assert expected in shown.stdout.splitlines(), shown.stdout
    assert shown.exit_code == int(is_alarm)


def test_two_equal_runs_give_nothing(runs):
    """What is measured anew in each run, and a few seconds, are no difference."""
    later = copy.deepcopy(RUN)
    checks(later)[1]["left"] = "after 9.9 s"
    checks(later)[2]["left"] = "61"
    later["notebooks"][0]["seconds"] = 6.5
    first = copy.deepcopy(RUN)
    checks(first)[0].update(left="700", right="700")  # it is another number in each run
    checks(later)[0].update(left="830", right="830")
    for name, run in (("20251231-030000-local", first), (BEFORE, RUN), (AFTER, later)):
        record(runs, name, **run)
    shown = workbench("diff")
    assert (shown.stdout, shown.exit_code) == (f"{BEFORE} → {AFTER}\n", 0)


def test_a_figure_is_shown_also_if_it_differs_in_each_run(runs):
    for day, value in enumerate(("70", "80", "90"), 1):
        run = copy.deepcopy(RUN)
        checks(run)[4]["left"] = value
        record(runs, f"2026010{day}-030000-local", **run)
    assert f"{PATH}: visitors: 80 → 90 (+12.50%)" in workbench("diff").stdout.splitlines()


def test_the_default_is_the_run_before_with_the_same_targets_and_parameters(runs):
    record(runs, BEFORE, **RUN)
    record(runs, "20260101-040000-local", **{**RUN, "targets": ["10_outbox"]})
    record(runs, "20260101-050000-local", **{**RUN, "parameters": {}})
    record(runs, "20260101-060000-aws", **RUN)
    (record(runs, "20260101-070000-local", **RUN) / "run.json").write_text("{")
    record(runs, AFTER, **RUN)
    assert workbench("diff").stdout.startswith(f"{BEFORE} → {AFTER}\n")
    only = workbench("diff", BEFORE)
    assert only.stdout.startswith(f"{BEFORE} → {AFTER}\n")
    missing = workbench("diff", "20260101-030001-local")
    assert missing.exit_code == 1 and BEFORE in str(missing.exception)


def test_the_first_run_has_nothing_to_be_compared_with(runs):
    assert "no run has ended" in str(workbench("diff").exception)
    record(runs, AFTER, **RUN)
    assert "no earlier run" in str(workbench("diff").exception)


def test_both_commands_have_json(runs):
    later = copy.deepcopy(RUN)
    fail(later)
    record(runs, BEFORE, **RUN)
    record(runs, AFTER, "failed", **later)
    listed = json.loads(workbench("--json").stdout)
    assert [run["status"] for run in listed] == ["failed", "passed"]
    assert listed[0]["notebooks"][1]["status"] == "failed" and listed[1]["parameters"]["limit"] == 5
    changes = json.loads(workbench("diff", "--json").stdout)
    assert {change["what"] for change in changes} == {"status", "orders"}
    assert all(change["is_alarm"] for change in changes)


def test_a_figure_is_recorded_as_the_comparison_reads_it(capsys):
    check.figure("revenue", 1234.5, "EUR", tolerance=0.005)
    check.figure("visitors", 80)
    assert capsys.readouterr().out.splitlines() == [
        "✔ revenue: value 1234.5 EUR · tolerance 0.5 %",
        "✔ visitors: value 80 · tolerance any",
    ]
    for value in (float("nan"), float("inf"), "80", None, True):
        with pytest.raises(Exception, match="is no figure"):
            check.figure("visitors", value)


def test_the_usual_seconds_are_the_median_of_earlier_runs(runs):
    for day, seconds in enumerate((20, 20, 90), 1):
        run = copy.deepcopy(RUN)
        run["notebooks"][1]["seconds"] = float(seconds)
        record(runs, f"2026010{day}-030000-local", **run)
    run["notebooks"][1].update(status="failed", seconds=0.0)
    for hour in range(4, 8):  # they tell nothing of the usual seconds
        record(runs, f"20260102-0{hour}0000-local", **run)
    third = history.named("20260103-030000-local")
    earlier = [*history.before(third)]
    assert [each.folder.name[6:8] for each in earlier] == [*["02"] * 5, "01"]
    (change,) = comparison.compare(earlier[4], third, earlier)
    assert (change.what, change.before, change.after) == ("seconds", "20.0", "90.0")
