"""A function or class of torch's, with arguments, as plain text: `StepLR(step_size=30)`."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from lotan.arguments import described
from lotan.errors import ConfigurationError


@dataclass(frozen=True)
class NamedCall:
    """A name with keyword arguments, whose values are numbers, strings, None, True, False or tuples of these."""

    name: str
    arguments: tuple[tuple[str, Any], ...] = ()

    @property
    def keywords(self) -> dict[str, Any]:
        """The arguments by name."""
        return dict(self.arguments)

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments)
        return f"{self.name}({given})" if given else self.name


def read_call(setting: str, given: str, example: str) -> NamedCall:
    """Read a name with its arguments. Nothing is run: the values are literals of Python.

    Args:
        setting: The setting that has the text, for errors.
        given: The text.
        example: A text that could be given, for errors.

    Raises:
        ConfigurationError: If the text is no such call.

    >>> read_call("lr_scheduler", "MultiStepLR(milestones=[30, 80], gamma=0.5)", "")
    NamedCall(name='MultiStepLR', arguments=(('milestones', (30, 80)), ('gamma', 0.5)))
    >>> str(read_call("loss", "huber", ""))
    'huber'
    """

    def refused(why: str) -> ConfigurationError:
        return ConfigurationError(f"{setting} is {described(given)}, {why}; write it as in {example!r}")

    try:
        parsed = ast.parse(given.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise refused("which is no name with arguments") from None
    call = ast.Call(parsed, [], []) if isinstance(parsed, ast.Name) else parsed
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise refused("which is no name with arguments")
    if call.args or any(keyword.arg is None for keyword in call.keywords):
        raise refused("which has an argument without a name")
    found = []
    for keyword in call.keywords:
        try:
            found.append((str(keyword.arg), _hashable(ast.literal_eval(keyword.value))))
        except ValueError:
            raise refused(f"whose {keyword.arg} is no plain value") from None
    return NamedCall(call.func.id, tuple(found))


def _hashable(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_hashable(item) for item in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(value)


def words_of(given: Any) -> str:
    """Return a setting that is a text, or a function given in its place, in words that do not change between runs.

    >>> words_of("huber"), words_of(words_of)
    ('huber', 'lotan.settings.named_calls:words_of')
    """
    if isinstance(given, str):
        return given
    inner = getattr(given, "func", None)
    if inner is not None:  # functools.partial
        values = [*map(repr, given.args), *(f"{name}={value!r}" for name, value in given.keywords.items())]
        return f"{words_of(inner)}({', '.join(values)})"
    owner = given if hasattr(given, "__qualname__") else type(given)
    return f"{owner.__module__}:{owner.__qualname__}"
