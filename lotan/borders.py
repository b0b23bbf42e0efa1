"""What the planner and the messenger raise, as errors of this package: neither room knows it, so it is said at the borders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import messenger.errors
import planner.errors
from lotan.errors import ConfigurationError, EngineError


class PlanError(ConfigurationError, planner.errors.PlanError):
    """A model or option that cannot be planned."""


class MessengerError(EngineError, messenger.errors.MessengerError):
    """A failure between the driver, the Router and the workers; its cause has the messenger's own type."""


@contextmanager
def translated() -> Iterator[None]:
    """Within the block, or the function it decorates: the two rooms' errors leave as those above, words unchanged."""
    try:
        yield
    except (PlanError, MessengerError):
        raise  # from a border further in
    except planner.errors.PlanError as error:
        raise PlanError(str(error)) from error
    except messenger.errors.MessengerError as error:
        raise MessengerError(str(error)) from error
