"""Hyper-parameter search: the models of a grid, trained on one graph over shared passes.

The page docs/reference/grid-file.md lists the keys of a grid file.
"""
