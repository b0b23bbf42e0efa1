"""Checks of all that training needs on this machine, one function each. `examine` runs them all and downloads nothing.

A check that ends in `error` means that training cannot run. `warning` means that something may go wrong or be slow.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Literal

from lotan.borders import first_line
from lotan.errors import GraphError
from lotan.hosts.jar import BUILD, JAR, spark_default, spark_defaults, spark_home
from lotan.rooms import check_rooms
from lotan.version import __version__

Status = Literal["ok", "warning", "error"]

MEASURED = {  # versions that were measured together, as in constraints.txt
    "pyspark": "4.3.0",
    "torch": "2.15.0",
    "pyarrow": "26.0.1",
    "numpy": "2.4.6",
    "pandas": "2.3.3",
    "pyzmq": "27.3.0",
    "msgpack": "1.2.4",
    "xxhash": "4.1.0",
    "scikit-learn": "1.9.1",
    "graphframes-py": "0.12.3",
}
OLDEST = {"pyspark": (4, 0), "torch": (2, 7), "pyarrow": (18,), "numpy": (2,), "pandas": (2, 2), "pyzmq": (26, 2)}
OPTIONAL = {"graphframes-py"}
# packages whose module has another name
MODULES = {"pyzmq": "zmq", "scikit-learn": "sklearn", "graphframes-py": "graphframes"}

OLDEST_PYTHON, OLDEST_JAVA = (3, 11), 17
LEAST_DISK, LEAST_SHARED_MEMORY, LEAST_MEMORY = 1 << 30, 256 << 20, 2 << 30  # bytes
JAVA_SECONDS = 20.0  # deadline of `java -version`
PYTHON_SECONDS = 60.0  # deadline of an import in another Python


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    status: Status
    found: str
    expected: str = ""
    mend: str = ""  # advice; empty if nothing is wrong


def examine() -> list[Finding]:
    """Run every check, in the order of a first set-up. A check that raises an error counts as an error."""
    findings = []
    for check in CHECKS:
        try:
            findings += check()
        except Exception as error:  # one failing check must not stop the others
            name = check.__name__.removeprefix("check_").replace("_", " ")
            findings.append(Finding(name, "error", f"{type(error).__name__}: {error}", "a check that runs"))
    return findings


def can_train(findings: list[Finding]) -> bool:
    """Return True if no check has ended in an error."""
    return all(finding.status != "error" for finding in findings)


def check_python() -> list[Finding]:
    """Check the version of Python."""
    found = f"{sys.version.split()[0]} at {sys.executable}"
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return [Finding("Python", "ok", found, "3.11 or newer")]
    return [Finding("Python", "error", found, "3.11 or newer", "Make the environment with a newer Python.")]


def check_java() -> list[Finding]:
    """Check the Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    expected = f"{OLDEST_JAVA} or newer"
    mend = "Install JDK 17 (Debian: openjdk-17-jdk-headless; macOS: brew install openjdk@17) and set JAVA_HOME to it."
    if program is None or shutil.which(program) is None:
        found = f"JAVA_HOME is {home}, with no bin/java" if home else "no java on the PATH, and JAVA_HOME is not set"
        return [Finding("Java", "error", found, expected, mend)]
    printed = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS, check=False)
    version = java_version(printed.stderr + printed.stdout)
    if version is None:
        return [Finding("Java", "error", f"{program} does not run", expected, mend)]
    status: Status = "ok" if version >= OLDEST_JAVA else "error"
    return [Finding("Java", status, f"{version} at {program}", expected, "" if status == "ok" else mend)]


def java_version(printed: str) -> int | None:
    """Return the major version in the output of `java -version`, or None.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_392"'), java_version("")
    (17, 8, None)
    """
    _, mark, rest = printed.partition('version "')
    numbers = rest.split('"')[0].removeprefix("1.").split(".")[0]
    digits = numbers.split("-")[0].split("+")[0]
    return int(digits) if mark and digits.isdigit() else None


def check_packages() -> list[Finding]:
    """Check that Python packages are installed, can be imported, and are not too old."""
    return [_package(name, measured) for name, measured in MEASURED.items()]


def _package(name: str, measured: str) -> Finding:
    install = f"Install it: pip install {name}=={measured}"
    try:
        version = metadata.version(name)
        if name not in OPTIONAL:  # graphframes-py loads Spark's whole machine learning library
            import_module(MODULES.get(name, name))
    except metadata.PackageNotFoundError:
        return Finding(name, "warning" if name in OPTIONAL else "error", "not installed", measured, install)
    except Exception as error:
        return Finding(
            name, "error", f"does not import: {error}", measured, f"Install it again: pip install {name}=={measured}"
        )
    if _numbers(version) < OLDEST.get(name, (0,)):
        return Finding(name, "error", version, f"{'.'.join(map(str, OLDEST[name]))} or newer", install)
    if name == "pandas" and _numbers(version) >= (3,):
        return Finding(name, "warning", version, "below 3, of which PySpark warns", install)
    return Finding(name, "ok", version, f"measured with {measured}")


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split("+")[0].split(".")
    return tuple(int(part) for part in parts if part.isdigit())


def check_rooms_on_path() -> list[Finding]:
    """Check that `planner` and `messenger` are the packages of this distribution."""
    try:
        check_rooms()
    except ImportError as error:
        return [
            Finding("own packages", "error", str(error), "lotan's own planner and messenger", "Do as the message says.")
        ]
    return [Finding("own packages", "ok", "planner and messenger are lotan's own")]


def check_executors_python() -> list[Finding]:
    """Check the Python that tasks of a Spark session run, if somebody else starts the session."""
    program = os.environ.get("PYSPARK_PYTHON") or spark_default("spark.pyspark.python") or "python3"
    name, mend = "Python of Spark", f"Activate the environment, or set PYSPARK_PYTHON={sys.executable}."
    expected = f"a Python with lotan {__version__}"
    found = shutil.which(program)
    if found is None:
        return [Finding(name, "warning", f"there is no {program}", expected, mend)]
    words = [found, "-c", "import lotan.version, messenger, pyarrow; print(lotan.version.__version__)"]
    elsewhere = tempfile.gettempdir()  # Python looks for packages in the folder in which it is started, too
    done = subprocess.run(words, capture_output=True, text=True, timeout=PYTHON_SECONDS, check=False, cwd=elsewhere)
    if done.returncode:
        told = (done.stderr.strip().splitlines() or ["it does not run"])[-1]
        return [Finding(name, "warning", f"{found}: {told}", expected, mend)]
    same = done.stdout.strip() == __version__
    status: Status = "ok" if same else "warning"
    return [Finding(name, status, f"{found} has lotan {done.stdout.strip()}", expected, "" if same else mend)]


def check_curve() -> list[Finding]:
    """Check that connections between hosts can be encrypted."""
    import zmq

    if zmq.has("curve"):
        return [Finding("CURVE", "ok", f"in libzmq {zmq.zmq_version()}")]
    mend = "Install a pyzmq wheel (with libsodium) to use workers on other hosts; on one host nothing is missing."
    return [Finding("CURVE", "warning", f"not in libzmq {zmq.zmq_version()}", "libzmq with libsodium", mend)]


def check_graphframes_core() -> list[Finding]:
    """Look for GraphFrames' JVM core. It is optional: propagate has a form without it."""
    jars = find_graphframes_jars()
    found = ", ".join(jars) if jars else "not found; propagate is planned as a join, which needs only Spark"
    return [Finding("GraphFrames core", "ok", found, "optional: spark.jars.packages, or LOTAN_GRAPHFRAMES_JAR")]


def find_graphframes_jars() -> list[str]:
    """Return the jars of the core that a session would find: those that the configuration names, and those among Spark's own."""
    named = os.environ.get("LOTAN_GRAPHFRAMES_JAR")
    jars = [named] if named and Path(named).is_file() else []
    jars += [line for line in spark_defaults() if "graphframes" in line]
    return jars + [str(jar) for jar in sorted((spark_home() / "jars").glob("graphframes*.jar"))]


def check_jar() -> list[Finding]:
    """Check that the jar of the blocks engine is there, has this version, and does a tiny job in Spark correctly."""
    mend = f"Build it: {BUILD} (in a checkout). Until then the other engines are used."
    if not JAR.is_file():
        return [Finding("jar", "warning", f"not at {JAR}", "the jar of the blocks engine", mend)]
    if any(finding.status == "error" for finding in check_java()):
        return [Finding("jar", "warning", f"{JAR}, not tried", "Java to try it with", "Mend Java first.")]
    from lotan.engines.blocks.trial import try_jar
    from lotan.hosts.spark_session import open_spark

    try:
        with closing(open_spark()) as spark:
            try_jar(spark.session)
    except Exception as error:  # Java may throw anything
        return [Finding("jar", "warning", f"{JAR}: {first_line(error)}", "a tiny job through it in Spark", mend)]
    return [Finding("jar", "ok", f"{JAR} did a tiny job in Spark")]


def check_temporary_folder() -> list[Finding]:
    """Check the folder for temporary files, where Spark and workers write what does not fit into memory."""
    folder = os.environ.get("TMPDIR") or tempfile.gettempdir()
    mend = "Set TMPDIR to a folder you may write to, on a disk with room."
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(b"written")
    except OSError as error:
        return [Finding("temporary folder", "error", f"{folder}: {error}", "a folder that can be written to", mend)]
    free = shutil.disk_usage(folder).free
    status: Status = "ok" if free >= LEAST_DISK else "warning"
    found = f"{folder}, {_gibibytes(free)} free"
    expected = f"{_gibibytes(LEAST_DISK)} free"
    return [Finding("temporary folder", status, found, expected, "" if status == "ok" else mend)]


def check_shared_memory() -> list[Finding]:
    """Check the shared memory through which micro-batches pass between processes of one host."""
    folder = Path("/dev/shm")
    if not folder.is_dir():
        return [Finding("shared memory", "ok", "no /dev/shm; rows travel through sockets")]
    free = shutil.disk_usage(folder).free
    status: Status = "ok" if free >= LEAST_SHARED_MEMORY else "warning"
    mend = (
        "" if status == "ok" else "Give it more (docker run --shm-size=1g), or expect rows to travel through sockets."
    )
    return [
        Finding("shared memory", status, f"{_gibibytes(free)} free", f"{_gibibytes(LEAST_SHARED_MEMORY)} free", mend)
    ]


def check_network() -> list[Finding]:
    """Check that this process can listen on loopback, and that the host name resolves, as Spark requires."""
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
    except OSError as error:
        mend = "Allow listening on 127.0.0.1: the Router and Spark need it."
        return [Finding("loopback", "error", str(error), "a port of 127.0.0.1", mend)]
    name = socket.gethostname()
    try:
        socket.gethostbyname(name)
    except OSError as error:
        mend = f"Add '127.0.0.1 {name}' to /etc/hosts, or set SPARK_LOCAL_IP=127.0.0.1."
        return [Finding("loopback", "warning", f"host name {name!r}: {error}", "a host name that resolves", mend)]
    return [Finding("loopback", "ok", "127.0.0.1 can be listened on")]


def check_machine() -> list[Finding]:
    """Check the number of cores and the free memory."""
    from lotan.memory.free import free_memory

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    available = free_memory()
    status: Status = "ok" if available >= LEAST_MEMORY else "warning"
    mend = "" if status == "ok" else "Close other programs, or train with fewer workers (--workers 1)."
    expected = f"{_gibibytes(LEAST_MEMORY)} available"
    return [Finding("machine", status, f"{cores} cores, {_gibibytes(available)} available", expected, mend)]


def check_cuda() -> list[Finding]:
    """Report the GPUs. Workers compute on the CPU so far, so no GPU is needed or used."""
    import torch

    if not torch.cuda.is_available():
        return [Finding("CUDA", "ok", "no GPU; none is needed")]
    return [Finding("CUDA", "ok", f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}, not used yet")]


def check_data() -> list[Finding]:
    """Check that the built-in graph can be read."""
    from lotan.graph.graph import Graph

    try:
        statistics = Graph.read("digits").statistics
    except (ImportError, GraphError) as error:
        mend = f"Install scikit-learn again: pip install scikit-learn=={MEASURED['scikit-learn']}"
        return [Finding("built-in graph", "error", str(error), "digits", mend)]
    return [Finding("built-in graph", "ok", f"digits: {statistics.vertices:,} vertices, {statistics.edges:,} edges")]


def _gibibytes(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"


CHECKS: tuple[Callable[[], list[Finding]], ...] = (
    check_python,
    check_java,
    check_packages,
    check_rooms_on_path,
    check_executors_python,
    check_curve,
    check_graphframes_core,
    check_temporary_folder,
    check_shared_memory,
    check_network,
    check_machine,
    check_cuda,
    check_data,
    check_jar,
)
