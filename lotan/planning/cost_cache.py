"""What this machine has shown to take how long: rates of a probe, and estimates and seconds of past runs on it while quiet.

One JSON file for each machine and version, in `lotan` below `$XDG_CACHE_HOME` (else `~/.cache`), or in `$LOTAN_COSTS` where
that names a folder; with `LOTAN_COSTS=off` nothing is read or written. A file that is damaged or none of ours is left out.
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
from planner.cost import DEFAULT_RATES, GROUPS, UNITS, Corrections, Rates

log = logging.getLogger(__name__)

FORMAT = 5  # raised also where the same names count other work: see planner.cost.counting, .stages and .shuffles
RUNS = 32  # of an engine that are remembered, the last ones
TRUST = 1.0  # in the estimate, as so many runs that bear it out
LEAST, MOST = 0.5, 2.0  # a correction, and so what all of them together make of an estimate
HALF_LIFE = 8  # runs of the same engine after which an older one counts half as much
LEAST_RATE, MOST_RATE = 1e-20, 1e6  # seconds a unit, on any machine there will be; what lies beyond is damage
LEAST_EPOCH, MOST_EPOCH = 1e-9, 1e9  # seconds
LOCK_DEADLINE = 1.0  # seconds that a run waits for others to write; after that it writes all the same
LOCK_PAUSE = 0.01  # seconds between attempts


@dataclass(frozen=True)
class PastRun:
    """An epoch: what its groups of work were estimated to take, uncorrected, and what all took. Seconds."""

    estimated: Mapping[str, float]  # by group of planner.cost.GROUPS, together the estimate
    measured: float


@dataclass(frozen=True)
class Known:
    """All that is known of this machine."""

    rates: Mapping[str, Rates] = field(default_factory=dict)  # by engine; without one, DEFAULT_RATES count
    runs: Mapping[str, Sequence[PastRun]] = field(default_factory=dict)  # by engine, the last ones last

    def rates_of(self, engine: str) -> Rates:
        """Measured here, or else elsewhere."""
        return self.rates.get(engine, DEFAULT_RATES[engine])

    def corrections(self, engine: str) -> Corrections:
        """What past runs say of an engine's estimates."""
        return corrections(self.runs.get(engine, ()))


def corrections(runs: Sequence[PastRun]) -> Corrections:
    """Factors of the groups that make the errors of past runs least; the fewer runs, the nearer to 1.

    An error counts by estimate^3/4 measure^1/4: of a single group, one run has its root as a factor, and one that was twice
    as slow as estimated and one twice as fast cancel out. A run counts half as much as one `HALF_LIFE` runs later, and no run
    as further off than a correction may be.

    Args:
        runs: of one engine, the last one last.
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
    """What there is; nothing, with a warning, of a file that cannot be used."""
    place = _file()
    if place is None or not place.exists():
        return Known()
    if not place.is_file():  # a pipe would be waited for
        _warn(place, "it is no ordinary file")
        return Known()
    try:
        return _known(json.loads(place.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        _warn(place, str(error))
        return Known()


@cache
def _warn(place: Path, error: str) -> None:
    """Once."""
    log.warning("costs in %s are left out: %s", place, error)


def obstacle() -> str | None:
    """Why nothing can be remembered; None where it can."""
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
    """Write rates of some engines; what their past runs said of the rates before is forgotten. Where to."""
    with _alone():
        known = load()
        runs = {name: of for name, of in known.runs.items() if name not in found}
        return _write(Known({**known.rates, **found}, runs))


def remember_run(engine: str, run: PastRun) -> None:
    """Add a run to those of its engine. What has no use in a fit is not remembered."""
    if not _usable(run):
        return
    with _alone():
        known = load()
        runs = (*known.runs.get(engine, ()), run)[-RUNS:]
        _write(Known(known.rates, {**known.runs, engine: runs}))


@contextmanager
def _alone() -> Iterator[None]:
    """While nobody else reads and writes: else the last to write would undo what others have added since it read.

    Who cannot lock in time, or at all as on some file systems of a network, goes on: a measurement lost costs little.
    """
    place = _file()
    try:
        if place is None:
            raise OSError("nothing is written")
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(place.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        _lock_in_time(lock)
        yield
    finally:
        os.close(lock)  # and so unlock


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
        raise ValueError("they are of another version or machine")
    rates = {name: Rates(**{unit: float(of[unit]) for unit in UNITS}) for name, of in data["rates"].items()}
    runs = {name: [PastRun(_groups(one), float(one["measured"])) for one in of] for name, of in data["runs"].items()}
    sound = all(LEAST_RATE <= value <= MOST_RATE for of in rates.values() for value in asdict(of).values())
    if (
        not sound
        or not all(_usable(run) for of in runs.values() for run in of)
        or not {*rates, *runs} <= {*DEFAULT_RATES}
    ):
        raise ValueError("they have numbers that cannot be")
    return Known(rates, runs)


def _groups(run: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(run["estimated"][name]) for name in GROUPS}


def _write(known: Known) -> Path | None:
    """Put a whole file in the old one's place. A folder that cannot be written costs no run."""
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
    """What rates depend on, and a file is named after."""
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
