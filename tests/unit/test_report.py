"""The report: self-contained, escaped, and with what failed first."""

import json
import re

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from workbench.run import notebooks, run_record

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAX+XDSwAAAABJRU5ErkJggg=="
CHECK, ERROR = yaml.safe_load("""
    - {cell: 3, section: Check, ok: true, what: <i>rows</i> in the lake, left: "829", right: "829",
       left_label: lake, right_label: source, detail: "", seconds: 0.1}
    - {cell: 3, section: Check, source: "check.equal('rows', 828, 829)", name: CheckFailed,
       message: "check failed: <script>alert(1)</script>", traceback: in <module>}
    """)


def entry(name, status, **more):
    cells = [("1. Load", 61.2), ("1. Load", 1.0), ("Check", 0.25)] if status != "skipped" else []
    return run_record.NotebookEntry(
        path=f"10_outbox/{name}.ipynb",
        title=f"Do {name}",
        promise="It is done.",
        status=status,
        seconds=63,
        cell_seconds=62.4,
        cells=[{"section": section, "seconds": seconds} for section, seconds in cells],
        **more,
    )


@pytest.fixture
def record(tmp_path):
    fig = new_output("display_data", {"image/png": PIXEL})
    cells = [
        new_markdown_cell("# Do it\n\nWell."),
        new_markdown_cell("## 2. Who *earns* it?"),
        new_code_cell("fig", outputs=[fig]),
    ]
    executed = tmp_path / "notebooks" / "10_outbox" / "11_a.ipynb"
    executed.parent.mkdir(parents=True)
    nbformat.write(new_notebook(cells=cells), executed)
    return run_record.RunRecord(
        folder=tmp_path,
        status="failed",
        world="local",
        describe="here",
        targets=["10_outbox"],
        parameters={"scale": 3},
        started="2026-11-21T09:00:00+01:00",
        seconds=190,
        cell_seconds=170,
        commit="abc1234",
        versions={"hudi": "1.0.2"},
        world_values=[("postgres.admin_password", "••••••")],
        notebooks=[
            entry("11_a", "passed", checks=[CHECK]),
            entry("12_b", "failed", checks=[{**CHECK, "ok": False}], error=ERROR),
            entry("13_c", "skipped"),
        ],
    )


def report(record):
    record.save()
    run_record.write_report(record.folder)
    return record.report.read_text()


def test_report_needs_nothing_else_and_escapes(record):
    page = report(record)
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", page)
    assert not re.findall(r"@import|url\(|<link|<script", page)
    assert "&lt;i&gt;rows&lt;/i&gt;" in page and "&lt;script&gt;" in page
    assert (
        'name="viewport"' in page
        and "@media print" in page
        and "prefers-color-scheme: dark" in page
    )


def test_report_tells_status_checks_pictures_and_how_to_repeat(record):
    page = report(record)
    assert (
        page.index("Failed in")
        < page.index("check.equal(&#39;rows&#39;")
        < page.index("<h2>Notebooks</h2>")
    )
    assert '<a href="#notebook-2">Do 12_b</a>' in page and 'id="notebook-2"' in page
    assert "1 of 3" in page and "1 of 2" in page and "3 min 10 s" in page
    assert "<small>lake</small>829" in page and "<small>source</small>829" in page
    assert f"data:image/png;base64,{PIXEL}" in page and ">2. Who earns it? <a class=" in page
    assert "1 min 02 s" in page  # the two cells of the section together
    assert 'make run ARGS="10_outbox --world local --param scale=3 --resume"' in page
    assert "not run" in page and "1.0.2" in page and "abc1234" in page


def test_failed_checks_are_open_and_passed_ones_folded_after_them(record):
    record.notebooks[1].checks.insert(0, {**CHECK, "what": "a green one"})
    page = report(record)
    first, second = page[page.index('id="notebook-1"') :].split('id="notebook-2"')
    assert (
        "<details><summary>1 of 1 checks passed</summary>" in first and 'class="red"' not in first
    )
    folded = second.index("<details><summary>1 of 2 checks passed</summary>")
    assert second.index('class="red"') < folded < second.index("a green one")
    assert (
        "details::details-content { content-visibility: visible" in page
    )  # on paper nothing is folded


def test_what_differs_in_own_data_stands_apart_neither_red_nor_green(record):
    own = {**CHECK, "ok": None, "what": "as published", "detail": "shown only"}
    record.notebooks[0].checks.append(own)
    page = report(record)
    assert (
        "<b>1 of 3</b><span>checks passed</span>" in page
        and "<b>1</b><span>not as published: own data" in page
    )
    assert "1 of 2, 1 not as published</td>" in page
    first = page[page.index('id="notebook-1"') :].split('id="notebook-2"')[0]
    assert (
        'class="own"' in first
        and "≠" in first
        and "shown only" in first
        and 'class="red"' not in first
    )


def test_a_folder_with_a_blank_is_quoted_where_the_command_is_repeated(record):
    record.parameters = {"from_dir": "/my data"}
    assert "--param &#39;from_dir=/my data&#39; --resume" in report(record)


@pytest.mark.parametrize(
    "text, title",
    [
        ("<Figure size 8x6 with 1 Axes>", "2. Who earns it?"),
        ("Artist <299>", "Artist &lt;299&gt;"),
        ("", "2. Who earns it?"),
    ],
)
def test_a_picture_has_its_section_below_its_own_title_for_who_does_not_see_it_and_a_full_size(
    record, text, title
):
    path = record.folder / "notebooks" / "10_outbox" / "11_a.ipynb"
    book = json.loads(path.read_text())
    book["cells"][-1]["outputs"][0]["data"]["text/plain"] = text
    path.write_text(json.dumps(book))
    page = report(record)
    assert (
        f'alt="{title}"></a><figcaption id="notebook-1-picture-1-caption">2. Who earns it? ' in page
    )
    assert (
        '<figure id="notebook-1-picture-1"><a href="#notebook-1-picture-1"><img src="data:' in page
    )
    assert "figure:target img { width: auto" in page and page.count(PIXEL) == 1


def test_title_and_promise():
    source = "# Load the `source`\n\nA [database](x.md) with *orders*\nin it.\n\nMore."
    cells = [{"cell_type": "markdown", "source": source}]
    intro = notebooks.introduction(cells, "11_a")
    assert intro == {
        "title": "Load the `source`",
        "promise": "A [database](x.md) with *orders* in it.",
    }
    assert notebooks.strip_markdown(intro["promise"]) == "A database with orders in it."
    assert notebooks.strip_markdown(intro["title"]) == "Load the source"
    assert notebooks.introduction([], "11_a") == {"title": "11_a", "promise": ""}
