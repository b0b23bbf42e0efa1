"""Class weights as one text, for command lines and Params: "balanced", "0.5,2" in order, or "1=10,3=2" by class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lotan.arguments import described
from lotan.errors import ConfigurationError


def by_class(given: Any) -> Any:
    """Return a pandas Series as the mapping from its index that it is, and any other class weights as they are."""
    return dict(given.items()) if type(given).__name__ == "Series" and hasattr(given, "items") else given


def read_weights(text: str) -> list[float] | dict[int | str, float] | str:
    """Return class weights that are written as a text.

    Raises:
        ConfigurationError: If the text is none of the three forms.

    >>> read_weights("0.5,2"), read_weights("1=10,spam=3"), read_weights("balanced")
    ([0.5, 2.0], {1: 10.0, 'spam': 3.0}, 'balanced')
    """
    if text == "balanced":
        return text
    parts = text.split(",")
    try:
        if "=" in text:
            pairs = [part.split("=") for part in parts]
            return {int(key) if key.strip().isdigit() else key: float(weight) for key, weight in pairs}
        return [float(part) for part in parts]
    except ValueError:
        raise ConfigurationError(
            f"class weights are {described(text)}; expected 'balanced', weights in order such as '0.5,2', or weights by "
            "class such as '1=10,3=2'"
        ) from None


def weights_in_words(given: Any) -> str:
    """Return class weights as a text that `read_weights` reads.

    >>> weights_in_words([0.5, 2]), weights_in_words({1: 10})
    ('0.5,2.0', '1=10.0')
    """
    if isinstance(given, str):
        return given
    given = by_class(given)
    if isinstance(given, Mapping):
        return ",".join(f"{key}={float(weight)!r}" for key, weight in given.items())
    return ",".join(repr(float(weight)) for weight in given)


def text_of_weights(given: Any) -> str:
    """Return class weights in any form as a text that `read_weights` reads.

    >>> text_of_weights({0: 1.0}), text_of_weights([1, 2]), text_of_weights("balanced")
    ('0=1.0', '1.0,2.0', 'balanced')

    Raises:
        ConfigurationError: If they are no class weights.
    """
    try:
        text = weights_in_words(given)
        read_weights(text)
    except (TypeError, ValueError, ConfigurationError):
        raise ConfigurationError(
            f"class weights are {described(given)}; expected 'balanced', weights in order such as [0.5, 2.0], or weights by "
            "class such as {1: 10.0}"
        ) from None
    return text
