"""The Grafana dashboard, without a Grafana: its structure, and the metrics of its queries."""

import itertools
import json
import re

import pytest
from workbench.base.paths import ROOT
from workbench.operate import metrics
from workbench.operate.problems import Observation

DASHBOARD = json.loads((ROOT / "docs/grafana/workbench.json").read_text(encoding="utf-8"))
CHARTS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# some of Grafana's, in its module @grafana/data, valueFormats/categories.ts
UNITS = {"none", "short", "s", "ms", "bytes", "percentunit", "eps", "mps"}
# the words of PromQL that the queries use, beside labels
WORDS = {"by", "max", "or", "rate", "sum"}
QUERIES = [
    pytest.param(target["expr"], target["legendFormat"], id=f"{panel['title']} {target['refId']}")
    for panel in CHARTS
    for target in panel["targets"]
]


def labels_by_metric():
    """Return {exported name: its labels}."""
    collector = metrics.FlowCollector()
    collector.observed = [
        Observation(
            "payments",
            freshness={"p50": 0.5, "p95": 1.5},
            unread={"payments": 7},
            retained={"slot": 1024},
            dead_letters={"payments": 1},
        )
    ]
    families = list(collector.collect())
    assert all(family.samples for family in families), "a metric without an example"
    return {family.name: set(family.samples[0].labels) for family in families}


def labels_of(name):
    """Return the labels of an exported metric; an unknown name is an error."""
    return labels_by_metric()[name]


@pytest.mark.parametrize("query, legend", QUERIES)
def test_a_query_uses_exported_metrics_and_their_labels_only(query, legend):
    selector = r"(\w+)\{([^}]*)\}"
    selectors = re.findall(selector, query)
    labels = set.union(*(labels_of(name) for name, _ in selectors))
    for name, matchers in selectors:
        used = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", matchers)
        assert set(used) <= labels_of(name) and len(used) == matchers.count('="') + matchers.count(
            '~"'
        )
    rest = re.sub(r"\[\$__rate_interval\]", "", re.sub(selector, "", query))
    assert set(re.findall(r"[a-zA-Z_]\w*", rest)) <= WORDS | labels, "a metric without {…}"
    legend_labels = set(re.findall(r"{{(\w+)}}", legend))
    assert legend_labels and legend_labels <= labels
    kept = re.search(r"\bby \(([^)]*)\)", query)
    assert not kept or legend_labels <= set(re.findall(r"\w+", kept[1]))
    assert query.count("(") == query.count(")") and query.count('"') % 2 == 0


def test_each_variable_is_used_and_lists_the_values_of_an_exported_label():
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__all", "__rate_interval"}
    assert used == set(VARIABLES)
    assert VARIABLES["datasource"]["query"] == "prometheus"
    for variable in [each for each in VARIABLES.values() if each["type"] == "query"]:
        query = variable["query"]["query"]
        assert query == variable["definition"] and variable["datasource"] == DATASOURCE
        name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()
        assert label in labels_of(name)


@pytest.mark.parametrize("panel", CHARTS, ids=lambda panel: panel["title"])
def test_a_panel_has_a_title_a_unit_and_the_variable_datasource(panel):
    assert panel["title"] and panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert all(each["datasource"] == DATASOURCE for each in (panel, *panel["targets"]))
    names = [target["refId"] for target in panel["targets"]]
    assert len(set(names)) == len(names) > 0


def test_panels_have_unique_ids_and_titles_and_do_not_overlap():
    panels = DASHBOARD["panels"]
    for key in ("id", "title"):
        assert len({panel[key] for panel in panels}) == len(panels)
    for one, other in itertools.combinations([panel["gridPos"] for panel in panels], 2):
        assert (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
    assert all(0 <= each["gridPos"]["x"] <= 24 - each["gridPos"]["w"] for each in panels)


def test_it_says_that_no_grafana_has_opened_it():
    assert "not opened in a Grafana" in DASHBOARD["description"]
