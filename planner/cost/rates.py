"""What a unit of work takes. Rates other than fixed ones are of one processor: work is shared among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Rates:
    """Seconds a unit of `planner.cost.work.Work`, whose fields say what the units are; and where caches end."""

    passes: float = 0.0  # seconds a pass
    steps: float = 0.0  # seconds a step and wave
    pipes: float = 0.0  # seconds a stage's run and wave
    calls: float = 0.0  # seconds a call
    edges: float = 0.0  # seconds an edge
    near_numbers: float = 0.0  # seconds a number
    far_numbers: float = 0.0  # seconds a number
    edge_values: float = 0.0  # seconds a number and operation
    scaled_numbers: float = 0.0  # seconds a number
    extreme_numbers: float = 0.0  # seconds a number
    collected_numbers: float = 0.0  # seconds a number
    shuffled_bytes: float = 0.0  # seconds a byte
    piped_bytes: float = 0.0  # seconds a byte
    multiply_adds: float = 0.0  # seconds a multiplication with its addition
    product_numbers: float = 0.0  # seconds a number
    numbers: float = 0.0  # seconds a number
    draws: float = 0.0  # seconds a random number
    autograd_numbers: float = 0.0  # seconds a number
    parameter_numbers: float = 0.0  # seconds a number
    spilled_bytes: float = 0.0  # seconds a byte


LOCAL = Rates(
    passes=0.00061,
    steps=8.7e-07,
    pipes=8.1e-07,
    calls=3.5e-05,
    edges=6.8e-09,
    near_numbers=7.3e-13,
    far_numbers=4.2e-10,
    edge_values=3.4e-09,
    scaled_numbers=5.3e-10,
    extreme_numbers=4e-09,
    collected_numbers=1e-09,
    shuffled_bytes=1e-09,
    piped_bytes=6.4e-12,
    multiply_adds=2.1e-11,
    product_numbers=1.1e-09,
    numbers=2.4e-10,
    draws=6.1e-10,
    autograd_numbers=2e-09,
    parameter_numbers=3.1e-10,
    spilled_bytes=1.7e-09,
)
BLOCKS = Rates(
    passes=0.088,
    steps=0.0035,
    pipes=0.013,
    calls=0.00014,
    edges=1.5e-09,
    near_numbers=4.4e-10,
    far_numbers=0.0,
    edge_values=4.4e-09,
    scaled_numbers=1.2e-10,
    extreme_numbers=4e-09,
    collected_numbers=1e-09,
    shuffled_bytes=2e-09,
    piped_bytes=2.5e-09,
    multiply_adds=3.2e-12,
    product_numbers=1.1e-10,
    numbers=7.3e-10,
    draws=8.9e-10,
    autograd_numbers=2e-09,
    parameter_numbers=3.6e-09,
    spilled_bytes=1.7e-10,
)
ROWS = Rates(
    passes=0.24,
    steps=0.18,
    pipes=0.18,
    calls=9.1e-06,
    edges=2.6e-07,
    near_numbers=4.4e-09,
    far_numbers=4e-09,
    edge_values=2e-09,
    scaled_numbers=1e-09,
    extreme_numbers=4e-09,
    collected_numbers=7.7e-08,
    shuffled_bytes=2e-09,
    piped_bytes=2.1e-08,
    multiply_adds=1.4e-11,
    product_numbers=2.9e-10,
    numbers=1.8e-10,
    draws=5.7e-10,
    autograd_numbers=3.5e-09,
    parameter_numbers=1.1e-08,
    spilled_bytes=1.7e-09,
)

DEFAULT_RATES: Mapping[str, Rates] = {"local": LOCAL, "blocks": BLOCKS, "rows": ROWS}
"""For machines on which nobody has measured: fitted to all cases of benchmarks/results/cost_model.md, on 2 cores (AMD
EPYC). Those say nothing of extremes, shuffles, what is collected and calls of autograd: these rates are guesses."""
