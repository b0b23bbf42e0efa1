"""`lotan router`: says where it listens, makes keys, refuses to listen beyond loopback without them."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from lotan.cli import main

pytestmark = pytest.mark.processes


def start_router(*options):
    return subprocess.Popen(
        [sys.executable, "-m", "lotan", "router", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("received", [signal.SIGINT, signal.SIGTERM])
def test_router_prints_its_address_and_stops_when_told(received):
    with start_router("--bind", "tcp://127.0.0.1:*") as router:
        assert router.stdout.readline().startswith("tcp://127.0.0.1:")
        router.send_signal(received)
        router.communicate(timeout=10)
        assert router.returncode == 0


def test_keys_are_made_once(tmp_path):
    keys = tmp_path / "keys"
    for made in (True, False):
        with start_router("--bind", "tcp://127.0.0.1:*", "--keys", str(keys)) as router:
            assert router.stdout.readline().startswith("made keys" if made else "tcp://")
            secret = (keys / "router.secret").read_text()
            router.send_signal(signal.SIGTERM)
            router.communicate(timeout=10)
    assert (keys / "router.secret").read_text() == secret


def test_beyond_loopback_needs_keys(capsys):
    assert main(["router", "--bind", "tcp://0.0.0.0:0"]) == 1
    assert "without keys" in capsys.readouterr().err


def test_port_in_use_is_named(capsys):
    with start_router("--bind", "tcp://127.0.0.1:*") as router:
        address = router.stdout.readline().strip()
        assert main(["router", "--bind", address]) == 1
        router.send_signal(signal.SIGTERM)
        router.communicate(timeout=10)
    assert address.rpartition(":")[2] in capsys.readouterr().err


@pytest.mark.parametrize("port", ["99999", "-1", "80 90", "²", "", "http"])
def test_port_that_cannot_be_is_refused_rather_than_taken_for_another(port, capsys):
    assert main(["router", "--bind", f"tcp://127.0.0.1:{port}"]) == 1
    assert f"{port!r} is no port from 0 to 65535" in capsys.readouterr().err


def test_keys_where_a_file_stands_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert main(["router", "--bind", "tcp://127.0.0.1:*", "--keys", str(tmp_path / "file")]) == 1
    shown = capsys.readouterr().err
    assert f"cannot make the keys directory {tmp_path / 'file'}" in shown
    assert "free some space" not in shown
