"""Dependencies point one way: import-linter's contracts in pyproject.toml hold."""

from __future__ import annotations

import ast
import logging
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def _loggers(monkeypatch):
    """import-linter configures logging, which disables every logger there is: later tests may listen to them."""
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            monkeypatch.setattr(logger, "disabled", logger.disabled)


@pytest.mark.usefixtures("_loggers")
def test_import_contracts_hold(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


DOORS = {"lotan", "lotan/cli", "lotan/datasets", "lotan/ml", "lotan/nn", "lotan/tracking", "planner", "planner/rules"}
"""The rooms whose `__init__.py` has names for others: the public ones, the planner's, and the table of rules."""


def test_other_rooms_only_say_what_they_are_for() -> None:
    for package in ("lotan", "planner", "messenger"):
        for path in (ROOT / package).rglob("__init__.py"):
            room = path.parent.relative_to(ROOT).as_posix()
            body = ast.parse(path.read_text()).body
            assert ast.get_docstring(ast.Module(body, [])), f"{room} does not say what it is for"
            assert room in DOORS or len(body) == 1, f"{room}/__init__.py has more than a docstring"
