"""Dependencies point one way: import-linter's contracts in pyproject.toml hold."""

from __future__ import annotations

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
