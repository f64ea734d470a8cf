"""Executed notebooks as pages: the code of folded cells is folded, their outputs are not."""

import re

from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from workbench.checks.check import MIME
from workbench.run import export

LINE = new_output(
    "display_data",
    {MIME: {"ok": True}, "text/html": "<div>✔ rows: lake 829</div>", "text/plain": "✔ rows"},
)


def page(*cells):
    return export.to_html(new_notebook(cells=[new_markdown_cell("# Title"), *cells]))


def test_the_code_of_a_folded_cell_is_folded_and_its_result_line_is_not():
    folded = new_code_cell(
        "check_rows()", metadata={"jupyter": {"source_hidden": True}}, outputs=[LINE]
    )
    html = page(folded, new_code_cell("open_cell()"))
    (details,) = re.findall(r"<details.*?</details>", html, re.S)
    assert "<summary" in details and "check_rows" in details and "open_cell" not in details
    assert "✔ rows: lake 829" in html and "✔ rows" not in details


def test_a_picture_beside_the_notebook_is_in_the_page(tmp_path):
    (tmp_path / "a.svg").write_text("<svg/>")
    html = export.to_html(new_notebook(cells=[new_markdown_cell("![a](a.svg)")]), tmp_path)
    assert 'src="data:image/svg+xml;base64,PHN2Zy8+"' in html
