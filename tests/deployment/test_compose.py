"""What docker-compose.yml would start, starts: no engine for containers is needed to find that out.

Its commands, as they stand there, run as processes on hosts made of network namespaces, each with a real address, a name and
shared memory of its own; its health checks say when they are ready. Limits of memory and the image are not tried.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lotan.cli import main
from lotan.hosts.jar import JAR
from tests.conftest import ROOT
from tests.deployment.compose import CONTENT, SERVICES, Service, in_order
from tests.deployment.hosts import Hosts

pytestmark = pytest.mark.processes

TOOLS = str(Path(sys.executable).parent)


# -- the file --------------------------------------------------------------------------------------------------------


def test_the_services_are_those_of_a_small_cluster() -> None:
    counted = {name: len(service.hosts) for name, service in SERVICES.items()}
    assert counted == {"spark-master": 1, "spark-worker": 2, "router": 1, "worker": 2, "jupyter": 1, "train": 1}


@pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)
def test_every_service_has_limits_and_what_it_names_is_there(service: Service) -> None:
    assert re.fullmatch(r"\d+[mg]", service.given["deploy"]["resources"]["limits"]["memory"])
    assert set(service.needs) <= set(SERVICES)
    assert set(service.needs.values()) <= {"service_healthy"}
    assert all(SERVICES[name].health for name in service.needs)
    assert set(service.volumes.values()) <= set(CONTENT["volumes"])
    assert service.given["image"] == SERVICES["router"].given["image"]
    assert all(port.startswith("127.0.0.1:") for port in service.given.get("ports", ())), "not for the network to see"


def test_all_but_the_job_start_by_themselves_and_say_how_they_are() -> None:
    assert [name for name, service in SERVICES.items() if "profiles" in service.given] == ["train"]
    assert [name for name, service in SERVICES.items() if not service.health] == ["train"]


def test_keys_are_written_by_the_router_alone() -> None:
    mounts = {name: [v for v in one.given.get("volumes", ()) if v.startswith("keys")] for name, one in SERVICES.items()}
    assert {name: found for name, found in mounts.items() if found} == {
        "router": ["keys:/keys"],
        **{name: ["keys:/keys:ro"] for name in ("worker", "jupyter", "train")},
    }


def test_the_image_is_made_of_what_is_here() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY") and "--from" not in line]
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for name in (name for names in copied for name in names):
        assert (ROOT / name).exists(), name
        assert name.partition("/")[0] in sent, f"{name} is not sent to the builder"
    mounted = {place for service in SERVICES.values() for place in service.volumes}
    assert all(any("install --directory" in line and place in line for line in lines) for place in mounted)


# -- and what it starts ----------------------------------------------------------------------------------------------


def here(words: list[str], folder: Path) -> list[str]:
    """The same words, where volumes are folders of the test."""
    for place in ("/keys", "/work"):
        words = [re.sub(rf"(?<![\w/]){place}(?=[/'\"]|$)", str(folder / place[1:]), word) for word in words]
    return words


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    """A host for each container, on which nothing runs."""
    monkeypatch.setenv("PATH", os.pathsep.join([TOOLS, os.environ["PATH"]]))
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    (tmp_path / "work").mkdir()
    names = [host for service in SERVICES.values() for host in service.hosts]
    try:
        made = Hosts(names, {service.name: service.hosts[0] for service in SERVICES.values()}, tmp_path)
    except OSError as error:
        pytest.skip(f"network namespaces cannot be made here: {error}")
    with closing(made):
        yield made


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly  # by day, tests/cli/test_by_hand.py lets the same processes meet on one host
@pytest.mark.skipif(not JAR.is_file(), reason="the jar has not been built: make jar")
def test_its_commands_train_between_hosts_over_keys(cluster: Hosts, tmp_path: Path) -> None:
    daemons = [service for service in in_order() if service.name not in ("jupyter", "train")]
    for service in daemons:
        for host in service.hosts:
            cluster.start(host, here(service.command, tmp_path))
        for host in service.hosts:
            cluster.wait_until(host, here(service.health, tmp_path))
    without_keys = [word.replace(", '/keys'", ", None") for word in SERVICES["worker"].health]
    assert "handshake failed" in cluster.run("worker-1", without_keys).stderr
    training = cluster.start("train", here(SERVICES["train"].command, tmp_path))
    assert training.wait(240) == 0, cluster.log("train")
    report = json.loads((tmp_path / "work" / "report.json").read_text())
    assert report["engine"] == "blocks"
    moved = report["transport"]
    assert moved["inline"] > 5 * moved["shared"], "hosts share no memory, which each partition finds out by trying once"
    assert (tmp_path / "work" / "model" / "weights.pt").exists()
    expected = train_here(tmp_path / "here.json")
    assert report["epochs"][0]["loss"] == pytest.approx(expected["epochs"][0]["loss"], rel=1e-5)
    assert report["epochs"][-1]["loss"] == pytest.approx(expected["epochs"][-1]["loss"], rel=1e-3)
    assert set(cluster.stop()) <= {0, 143}


def train_here(report: Path) -> dict:
    """The same job in this process."""
    words = SERVICES["train"].command[1 : SERVICES["train"].command.index("--engine")]
    assert main([*words, "--engine", "local", "--quiet", "--report", str(report)]) == 0
    return json.loads(report.read_text())


@pytest.mark.skipif(shutil.which("jupyter-lab", path=TOOLS) is None, reason="JupyterLab is not installed here")
def test_jupyterlab_serves(tmp_path: Path, cluster: Hosts) -> None:
    cluster.start("jupyter", here(SERVICES["jupyter"].command, tmp_path))
    cluster.wait_until("jupyter", here(SERVICES["jupyter"].health, tmp_path))
