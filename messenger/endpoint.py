"""The address and keys with which a peer connects to a Router. They are plain data that travels to Spark tasks."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Endpoint:
    """A Router's address and, where it asks for keys, this peer's CurveZMQ key pair (Z85 text).

    The secret key never appears in its printed form.
    """

    address: str  # such as tcp://127.0.0.1:4711
    server_key: str | None = None  # the Router's public key, or None if it uses no keys
    public_key: str | None = None  # this peer's public key
    secret_key: str | None = field(default=None, repr=False)
