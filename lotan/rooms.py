"""A check that `planner` and `messenger` are the packages of this distribution: others use these names too."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

ROOMS = ("planner", "messenger")


def check_rooms() -> None:
    """Refuse a foreign `planner` or `messenger` that comes first on the path.

    Raises:
        ImportError: If there is one. The message says where it is and what to do.
    """
    home = Path(__file__).resolve().parents[1]
    for room in ROOMS:
        found = _folder(find_spec(room))
        if found != home / room:
            raise ImportError(
                f"lotan needs its own package {room!r} in {home}, but Python finds "
                f"{f'another one at {found}' if found else 'none'}. Rename your {room}.py or {room}/, or put {home} before "
                f"it on sys.path (PYTHONPATH); if nothing of yours has that name, install lotan again"
            )


def _folder(spec: ModuleSpec | None) -> Path | None:
    """Return the folder of a package, or the file of a plain module."""
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(spec.origin).resolve() if spec.origin else None
