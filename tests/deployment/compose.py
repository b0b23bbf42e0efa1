"""docker-compose.yml, as what starts its services reads it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

import yaml

from tests.conftest import ROOT

CONTENT: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())


@dataclass(frozen=True)
class Service:
    """One of the file's services."""

    name: str
    given: dict[str, Any]

    @property
    def command(self) -> list[str]:
        """The words that it runs."""
        return shlex.split(self.given["command"])

    @property
    def health(self) -> list[str]:
        """The words that say whether it is well; none where nobody asks."""
        return list(self.given.get("healthcheck", {"test": ["CMD"]})["test"][1:])

    @property
    def hosts(self) -> list[str]:
        """The names of its containers."""
        replicas = self.given["deploy"].get("replicas", 1)
        return [self.name] if replicas == 1 else [f"{self.name}-{number}" for number in range(1, replicas + 1)]

    @property
    def needs(self) -> dict[str, str]:
        """Services that have to be there first, each with in which state."""
        return {name: given["condition"] for name, given in self.given.get("depends_on", {}).items()}

    @property
    def volumes(self) -> dict[str, str]:
        """Volume by the place where it is mounted."""
        split = [entry.split(":") for entry in self.given.get("volumes", ())]
        return {place: volume for volume, place, *_ in split}


SERVICES = {name: Service(name, given) for name, given in CONTENT["services"].items()}


def in_order() -> list[Service]:
    """Each service after those that it needs."""
    ordered: list[Service] = []
    while len(ordered) < len(SERVICES):
        there = {service.name for service in ordered}
        ready = [one for one in SERVICES.values() if one.name not in there and set(one.needs) <= there]
        assert ready, "services need each other in a circle"
        ordered += ready
    return ordered
