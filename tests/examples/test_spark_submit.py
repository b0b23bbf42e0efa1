"""`lotan train` under spark-submit, with the script of the README."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.mark.spark
@pytest.mark.slow
def test_spark_submit_trains_on_its_master(tmp_path):
    tools = Path(sys.executable).parent
    report = tmp_path / "report.json"
    submit = [str(tools / "spark-submit"), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    train = ["--graph", "digits", "--engine", "rows", "--epochs", "2", "--eval-every", "0", "--report", str(report)]
    as_users_have_it = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
    done = subprocess.run(
        [*submit, str(ROOT / "examples" / "train.py"), *train],
        env={**as_users_have_it, "PATH": os.pathsep.join([str(tools), os.environ["PATH"]])},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    written = json.loads(report.read_text())
    assert written["engine"] == "rows"
    assert [entry["epoch"] for entry in written["epochs"]] == [1, 2]
