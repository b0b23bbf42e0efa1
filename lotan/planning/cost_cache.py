"""The costs that this machine has shown: measured rates, and the seconds of past runs on it while it was quiet.

There is one JSON file for each machine and version. It is in the folder `$LOTAN_COSTS`, or else in `lotan` below
`$XDG_CACHE_HOME` (or `~/.cache`). With `LOTAN_COSTS=off` nothing is read or written. A damaged or foreign file is
ignored.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import platform
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lotan.version import __version__
from planner.cost.seconds import Corrections
from planner.rates import DEFAULT_RATES, Rates
from planner.work import GROUPS, UNITS

log = logging.getLogger(__name__)

FORMAT = 5  # also raised when the same names count other work: see planner.steps and planner.cost
RUNS = 32  # the number of last runs of an engine that are recorded
TRUST = 1.0  # the weight of the estimate, as a number of runs that confirm it
LEAST, MOST = 0.5, 2.0  # limits of a correction, and so of what all of them together make of an estimate
HALF_LIFE = 8  # a run counts half as much as one so many runs of the same engine later
LEAST_RATE, MOST_RATE = 1e-20, 1e6  # limits of plausible rates, in seconds per unit; values beyond them are damage
LEAST_EPOCH, MOST_EPOCH = 1e-9, 1e9  # limits of plausible epochs, in seconds
LOCK_DEADLINE = 1.0  # seconds that a run waits for other writers; then it writes without a lock
LOCK_PAUSE = 0.01  # seconds between attempts


@dataclass(frozen=True)
class PastRun:
    """A typical epoch of a past run: the estimated seconds of each group of work, uncorrected, and the measured seconds."""

    estimated: Mapping[str, float]  # by the groups of planner.cost.GROUPS; the sum is the whole estimate
    measured: float


@dataclass(frozen=True)
class Known:
    """All costs that are known of this machine."""

    rates: Mapping[str, Rates] = field(
        default_factory=dict
    )  # by engine; its traits' rates stand in for a missing engine
    runs: Mapping[str, Sequence[PastRun]] = field(default_factory=dict)  # by engine, the latest run last

    def corrections(self, engine: str) -> Corrections:
        """Return the corrections that past runs suggest for an engine's estimates."""
        return corrections(self.runs.get(engine, ()))


def corrections(runs: Sequence[PastRun]) -> Corrections:
    """Return the factors of the groups that minimise the errors of past runs. The fewer runs, the nearer they are to 1.

    Errors are weighted by estimate^3/4 measure^1/4. With a single group, one run yields the square root of its ratio as
    factor. A run twice as slow as estimated and one twice as fast cancel out. A run counts half as much as one `HALF_LIFE`
    runs later, and its error is clipped to the limits of a correction.

    Args:
        runs: The runs of one engine, the latest one last.
    """
    estimated = np.array([[run.estimated[name] for name in GROUPS] for run in runs]).reshape(-1, len(GROUPS))
    together = np.maximum(estimated.sum(axis=1), LEAST_EPOCH)
    measured = np.clip([run.measured for run in runs], LEAST * together, MOST * together)
    scale = together**0.75 * measured**0.25 * 2.0 ** (np.arange(len(runs))[::-1] / (2 * HALF_LIFE))
    parts = estimated / scale[:, None]
    square = parts.T @ parts + TRUST * np.eye(len(GROUPS))
    found = np.linalg.solve(square, parts.T @ (measured / scale) + TRUST)
    return Corrections(*np.clip(found, LEAST, MOST).tolist())


def load() -> Known:
    """Return the known costs. If the file cannot be used, warn and return nothing."""
    place = _file()
    if place is None or not place.exists():
        return Known()
    if not place.is_file():  # reading a pipe would wait for ever
        _warn(place, "it is not an ordinary file")
        return Known()
    try:
        return _known(json.loads(place.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        _warn(place, str(error))
        return Known()


@cache
def _warn(place: Path, error: str) -> None:
    """Log the warning once for each file and error."""
    log.warning("costs in %s are ignored: %s", place, error)


def obstacle() -> str | None:
    """Return the reason why costs cannot be stored, or None if they can."""
    place = _file()
    if place is None:
        return "$LOTAN_COSTS is off"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place.parent):
            return None
    except OSError as error:
        return f"the folder {place.parent} cannot be written ({error.strerror or error})"


def remember_rates(found: Mapping[str, Rates]) -> Path | None:
    """Store the rates of some engines, and forget their past runs, which were compared with other rates.

    Returns:
        The path of the file, or None if it could not be written.
    """
    with _alone():
        known = load()
        runs = {name: of for name, of in known.runs.items() if name not in found}
        return _write(Known({**known.rates, **found}, runs))


def remember_run(engine: str, run: PastRun) -> None:
    """Add a run to those of its engine. A run that is no use in a fit is not added."""
    if not _usable(run):
        return
    with _alone():
        known = load()
        runs = (*known.runs.get(engine, ()), run)[-RUNS:]
        _write(Known(known.rates, {**known.runs, engine: runs}))


@contextmanager
def _alone() -> Iterator[None]:
    """Lock the file within the block, because a concurrent writer would undo what others have added since it read.

    If the lock does not come in time, or if a network file system has no locks, the block runs without one: a lost
    measurement costs little.
    """
    place = _file()
    try:
        if place is None:
            raise OSError("no file is written")
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(place.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        _lock_in_time(lock)
        yield
    finally:
        os.close(lock)  # which also unlocks


def _lock_in_time(lock: int) -> None:
    deadline = time.monotonic() + LOCK_DEADLINE
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return log.debug("costs are written without a lock, which another has held for %s s", LOCK_DEADLINE)
            time.sleep(LOCK_PAUSE)
        except OSError as error:
            return log.debug("costs are written without a lock: %s", error)


def _usable(run: PastRun) -> bool:
    return (
        all(0 <= value <= MOST_EPOCH for value in run.estimated.values()) and LEAST_EPOCH <= run.measured <= MOST_EPOCH
    )


def _known(data: Any) -> Known:
    if data["format"] != FORMAT or data["machine"] != machine():
        raise ValueError("they belong to another version or machine")
    rates = {name: Rates(**{unit: float(of[unit]) for unit in UNITS}) for name, of in data["rates"].items()}
    runs = {name: [PastRun(_groups(one), float(one["measured"])) for one in of] for name, of in data["runs"].items()}
    sound = all(LEAST_RATE <= value <= MOST_RATE for of in rates.values() for value in asdict(of).values())
    if (
        not sound
        or not all(_usable(run) for of in runs.values() for run in of)
        or not {*rates, *runs} <= {*DEFAULT_RATES}
    ):
        raise ValueError("they have impossible numbers")
    return Known(rates, runs)


def _groups(run: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(run["estimated"][name]) for name in GROUPS}


def _write(known: Known) -> Path | None:
    """Replace the file by a complete new one. If the folder cannot be written to, no error is raised."""
    place = _file()
    if place is None:
        return None
    data = {
        "format": FORMAT,
        "machine": machine(),
        "rates": {name: asdict(rates) for name, rates in known.rates.items()},
        "runs": {name: [asdict(run) for run in runs] for name, runs in known.runs.items()},
    }
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        descriptor, unfinished = tempfile.mkstemp(dir=place.parent, prefix=place.name)
    except OSError as error:
        log.debug("costs are not remembered: %s", error)
        return None
    try:
        with open(descriptor, "w", encoding="utf-8") as stream:
            json.dump(data, stream, indent=1)
        os.replace(unfinished, place)
    except OSError as error:
        Path(unfinished).unlink(missing_ok=True)
        log.debug("costs are not remembered: %s", error)
        return None
    return place


def machine() -> dict[str, Any]:
    """Return the facts that rates depend on; the file is named after their digest."""
    return {"version": __version__, "processor": _processor(), "cores": os.cpu_count() or 1, "units": list(UNITS)}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _file() -> Path | None:
    named = os.environ.get("LOTAN_COSTS")
    if named is not None and named.lower() == "off":
        return None
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(named) if named else Path(cache) / "lotan"
    digest = hashlib.sha256(json.dumps(machine(), sort_keys=True).encode()).hexdigest()[:12]
    return folder / f"costs-{digest}.json"
