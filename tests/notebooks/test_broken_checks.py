"""Every check of every notebook is shown able to fail: the data behind it are changed, and it goes
red and says where.

How a break is written stands in breaking.py."""

import breaks_log_based
import breaks_movies
import breaks_museum
import breaks_outbox
import breaks_query_based
import breaks_sales
import breaks_storefront
import pytest
from breaking import find_problems
from workbench.base.paths import ROOT

BREAKS = {
    **breaks_outbox.BREAKS,
    **breaks_query_based.BREAKS,
    **breaks_log_based.BREAKS,
    **breaks_movies.BREAKS,
    **breaks_museum.BREAKS,
    **breaks_sales.BREAKS,
    **breaks_storefront.BREAKS,
}


@pytest.mark.drill
@pytest.mark.parametrize("name", [p.stem for p in sorted((ROOT / "notebooks").rglob("*.ipynb"))])
def test_every_check_of_a_notebook_can_fail(world, tmp_path, name):
    found = find_problems(world, name, BREAKS[name], tmp_path)
    assert not found, "\n".join(found)
