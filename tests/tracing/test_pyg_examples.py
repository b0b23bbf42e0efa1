"""The models of PyG's and OGB's examples train as the page in the docs says. Most are tried by the nightly run."""

from __future__ import annotations

import pytest

from tools.pyg_examples import EXAMPLES, PAGE, reason_against

pytestmark = pytest.mark.thorough

USUAL = ("dir_gnn", "label_prop", "rgat", "nodeproppred/arxiv (SAGE)")
TRAIN, _, DO_NOT = PAGE.read_text().partition("## Models that do not")


@pytest.mark.parametrize(
    "name", [name if name in USUAL else pytest.param(name, marks=pytest.mark.nightly) for name in EXAMPLES]
)
def test_an_example_trains_if_the_page_says_so(name: str) -> None:
    reason = reason_against(name)
    assert f"| {name} | {EXAMPLES[name].source} |" in (TRAIN if reason is None else DO_NOT), reason


def test_the_page_lists_each_example_once() -> None:
    for name in EXAMPLES:
        assert (TRAIN + DO_NOT).count(f"\n| {name} | ") == 1
    works = TRAIN.count("\n| ") - 1
    assert f"{works} of {len(EXAMPLES)} do" in TRAIN
