"""Cases that `make nightly` alone runs, because those that stay by day find faults of their kind."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def at_night(cases: Iterable[tuple[Any, ...]], unless: Container[tuple[Any, ...]]) -> list[ParameterSet]:
    """Return cases as parameters. Those that are not in `unless` are run by `make nightly` alone."""
    return [pytest.param(*case, marks=() if case in unless else pytest.mark.nightly) for case in cases]


def also_in_spark(
    cases: Iterable[tuple[Any, str]], by_day: Container[str], said: Callable[[Any], str]
) -> list[ParameterSet]:
    """Cases with where each is read: "spark" or elsewhere. Of those in Spark, `make nightly` alone runs some.

    Args:
        cases: the cases, which have a name.
        by_day: the names of those that are read from Spark by day.
        said: the function that describes a case in the name of its test.
    """
    found = []
    for case, place in cases:
        marks = [] if place != "spark" else [pytest.mark.spark, *[pytest.mark.nightly] * (case.name not in by_day)]
        found.append(pytest.param(case, place, marks=marks, id=f"{said(case)}-{place}"))
    return found
