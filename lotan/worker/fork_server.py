"""The process that workers are forked from: `python -m lotan.worker.fork_server DESCRIPTOR`.

It loads torch and what a worker runs once. Each worker is then a fork, which takes milliseconds and shares the memory of what
was loaded. `lotan.hosts.fork_server` is the side of the process that asks for workers.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import sys
import tempfile
import traceback
from contextlib import suppress
from typing import Any

from lotan.worker import serving

LARGEST_REQUEST = 1 << 20  # bytes; a request has the environment of the process that asks
WORKER_TITLE = "lotan worker"  # at most 15 characters
DESCRIPTORS = 3  # that come with a request, see `serve`


def serve(asked: socket.socket) -> None:
    """Fork a worker for each request, and tell of its start and its end, until nobody can ask any more.

    A request is one line of JSON: `words` of the worker's command line, `environment`, and `folder` to work in. Three
    descriptors come with it: the worker's standard input, the pipe that is told, and the worker's standard error. The pipe gets
    a line with the worker's process number, and at its end a line with its status, negative for a signal.

    Args:
        asked: a connected stream of the process that asks. Its end is this process's end.
    """
    told: dict[int, int] = {}  # by the number of each worker: the pipe that is told of its end
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with selectors.DefaultSelector() as selector:
        selector.register(asked, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if woken in ready:
                os.read(woken, 4096)
                _tell_of_ends(told)
            if asked.fileno() in ready:
                line, received, _, _ = socket.recv_fds(asked, LARGEST_REQUEST, DESCRIPTORS)
                if not line:
                    return
                while not line.endswith(b"\n"):
                    line += asked.recv(LARGEST_REQUEST)
                number = os.fork()
                if number == 0:
                    selector.close()
                    _become_worker(json.loads(line), received, [asked.fileno(), woken, wake, *told.values()])
                stdin, pipe, stderr = received
                os.close(stdin)
                os.close(stderr)
                told[number] = pipe
                _tell(pipe, number)


def _tell_of_ends(told: dict[int, int]) -> None:
    for number in list(told):
        ended, status = os.waitpid(number, os.WNOHANG)
        if ended:
            pipe = told.pop(number)
            _tell(pipe, os.waitstatus_to_exitcode(status))
            os.close(pipe)


def _tell(pipe: int, number: int) -> None:
    # whoever asked may be gone
    with suppress(BrokenPipeError):
        os.write(pipe, b"%d\n" % number)


def _become_worker(request: dict[str, Any], received: list[int], of_server: list[int]) -> None:
    """Run a worker in this fork, and end with its status."""
    status = 1
    try:
        stdin, _, stderr = received
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for source, place in ((stdin, 0), (nowhere, 1), (stderr, 2)):
            os.dup2(source, place)
        signal.set_wakeup_fd(-1)
        for descriptor in (*received, nowhere, *of_server):
            os.close(descriptor)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        tempfile.tempdir = None  # it is looked up again in this environment
        with suppress(OSError), open("/proc/self/comm", "w") as name:  # Linux: what `ps` and `top` show
            name.write(WORKER_TITLE)
        status = serving.main(request["words"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    gc.freeze()  # so that no collection in a fork copies the pages of what was loaded
    serve(socket.socket(fileno=int(sys.argv[1])))
