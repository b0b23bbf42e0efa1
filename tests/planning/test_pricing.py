"""How work would be spread, as a run is priced."""

from __future__ import annotations

import pytest

from lotan.engines.choice import ENGINES
from lotan.planning.cost_cache import Known, PastRun
from lotan.planning.pricing import priced
from lotan.settings.config import TrainerConfig
from planner.rates import DEFAULT_RATES
from planner.work import GROUPS


@pytest.mark.parametrize(
    ("master", "shuffled"),
    [(None, False), ("local", False), ("local[4]", False), ("local-cluster[2,1,1024]", True), ("spark://h:7077", True)],
)
def test_rows_are_shuffled_where_partitions_lie_in_several_jvms(master, shuffled):
    assert priced(ENGINES["blocks"], TrainerConfig(), Known(), master).layout.shuffled == shuffled


def test_a_price_says_what_it_rests_on():
    known = Known({"local": DEFAULT_RATES["local"]}, {"blocks": [PastRun(dict.fromkeys(GROUPS, 1.0), 3.0)] * 5})
    found = (priced(ENGINES[engine], TrainerConfig(), known) for engine in ("local", "blocks", "rows"))
    assert [(one.measured is not None, one.runs) for one in found] == [(True, 0), (False, 5), (False, 0)]
