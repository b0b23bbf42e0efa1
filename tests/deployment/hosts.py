"""Hosts made of network namespaces: each with an address, a name, processes and shared memory of its own, behind one bridge."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

SETTINGS = Path("/etc/netns")  # where `ip netns exec` takes a host's own /etc/hosts from
NAMED = 'hostname "$1" && mount -t tmpfs tmpfs /dev/shm && shift && exec "$@"'


class Hosts:
    """Namespaces that see each other, and nothing else.

    Args:
        names: of the hosts, by which they find each other.
        aliases: further names, of one host each.
        folder: for what their processes write.

    Raises:
        OSError: this machine, or this user, cannot make them; in words.
    """

    def __init__(self, names: Sequence[str], aliases: dict[str, str], folder: Path) -> None:
        self._names, self._folder = tuple(names), folder
        self._prefix = f"lotan-{os.getpid()}"
        self._addresses = {name: f"10.77.0.{place}" for place, name in enumerate(names, 2)}
        self._hosts = self._addresses | {alias: self._addresses[name] for alias, name in aliases.items()}
        self._started: list[subprocess.Popen[str]] = []
        self._undo = ExitStack()
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        switch = self._namespace("switch")
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for place, name in enumerate(self._names):
            host = self._namespace(name)
            _ip("-n", switch, "link", "add", f"port{place}", "type", "veth", "peer", "name", "eth0", "netns", host)
            _ip("-n", switch, "link", "set", f"port{place}", "master", "bridge", "up")
            _ip("-n", host, "address", "add", f"{self._addresses[name]}/24", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")
            _ip("-n", host, "link", "set", "lo", "up")
            own = SETTINGS / host
            own.mkdir(parents=True)
            self._undo.callback(shutil.rmtree, own)
            lines = ["127.0.0.1 localhost", *(f"{address} {known}" for known, address in self._hosts.items())]
            (own / "hosts").write_text("\n".join(lines) + "\n")
        if (tried := self.run(self._names[0], ["true"])).returncode:
            raise OSError(f"ip netns exec: {tried.stderr.strip()}")

    def _namespace(self, name: str) -> str:
        full = f"{self._prefix}-{name}"
        _ip("netns", "add", full)
        self._undo.callback(_ip, "netns", "delete", full)
        return full

    def _words(self, host: str, words: Sequence[str]) -> list[str]:
        # processes of one host do not see those of another, through whose open files memory could be shared
        apart = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        inside = ["ip", "netns", "exec", f"{self._prefix}-{host}", *apart]
        return [*inside, "sh", "-c", NAMED, "sh", host, *words]

    def start(self, host: str, words: Sequence[str], **environment: str) -> subprocess.Popen[str]:
        """A process on a host; what it writes is in `log(host)`."""
        with open(self._folder / f"{host}.log", "w") as log:
            process = subprocess.Popen(
                self._words(host, words), stdout=log, stderr=log, env=os.environ | environment, text=True
            )
        self._started.append(process)
        return process

    def run(self, host: str, words: Sequence[str], seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """A command on a host, to its end."""
        return subprocess.run(
            self._words(host, words), capture_output=True, text=True, timeout=seconds, check=False, env=os.environ
        )

    def wait_until(self, host: str, words: Sequence[str], seconds: float = 120) -> None:
        """Until a command succeeds there."""
        end, pause = time.monotonic() + seconds, threading.Event()
        while (done := self.run(host, words)).returncode:
            assert time.monotonic() < end, f"{host} is not healthy: {done.stderr}\n{self.log(host)}"
            pause.wait(1)

    def log(self, host: str) -> str:
        """What a host's process has written."""
        return (self._folder / f"{host}.log").read_text()

    def stop(self) -> list[int]:
        """End all processes, the last one first; their exit statuses."""
        started, self._started = self._started[::-1], []
        for process in started:
            for child in _children(process):
                child.terminate()
        return [_ended(process) for process in started]

    def close(self) -> None:
        """Leave nothing. May be called twice."""
        self.stop()
        self._undo.close()


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def _children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """What `unshare` has started, and waits for."""
    try:
        return psutil.Process(process.pid).children()
    except psutil.Error:
        return []


def _ended(process: subprocess.Popen[str]) -> int:
    with suppress(subprocess.TimeoutExpired):
        return process.wait(20)
    process.kill()
    return process.wait()
