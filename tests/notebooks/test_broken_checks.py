"""Each check of each notebook can fail: a break changes its data, and the check goes red.

breaking.py describes breaks.
"""

import breaks_log_based
import breaks_movies
import breaks_museum
import breaks_operations
import breaks_operations_82_83
import breaks_operations_85_87
import breaks_operations_86
import breaks_operations_88
import breaks_outbox
import breaks_own
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
    **breaks_operations.BREAKS,
    **breaks_operations_82_83.BREAKS,
    **breaks_operations_86.BREAKS,
    **breaks_operations_88.BREAKS,
    **breaks_operations_85_87.BREAKS,
    **breaks_own.BREAKS,
}


@pytest.mark.drill
@pytest.mark.parametrize("name", [p.stem for p in sorted((ROOT / "notebooks").rglob("*.ipynb"))])
def test_every_check_of_a_notebook_can_fail(world, tmp_path, name):
    problems = find_problems(world, name, BREAKS[name], tmp_path)
    assert not problems, "\n".join(problems)
