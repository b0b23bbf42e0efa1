"""Estimates the seconds that a plan's steps take on an engine: counted work times measured rates.

`counting`, `stages` and `shuffles` count the work of a step, and `planner.rates` has the seconds of a unit of work.
`seconds` adds them up, and lets work overlap that runs side by side. Together they stand for equations 13 to 17 of the
paper, with separate terms for the parts of a plan.
"""
