"""How work would be spread, as a run is priced."""

from __future__ import annotations

import pytest

from lotan.cost_cache import Known
from lotan.pricing import priced
from lotan.settings import TrainerConfig


@pytest.mark.parametrize(
    ("master", "shuffled"),
    [(None, False), ("local", False), ("local[4]", False), ("local-cluster[2,1,1024]", True), ("spark://h:7077", True)],
)
def test_rows_are_shuffled_where_partitions_lie_in_several_jvms(master, shuffled):
    assert priced("blocks", TrainerConfig(), Known(), master).layout.shuffled == shuffled
