"""What a peer needs to know to connect to a Router: plain data that travels to Spark tasks."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Endpoint:
    """A Router's address and, where it asks for keys, this peer's CurveZMQ key pair (Z85 text).

    The secret key never appears in its printed form.
    """

    address: str  # such as tcp://127.0.0.1:4711
    server_key: str | None = None  # the Router's public key; None: no keys
    public_key: str | None = None  # this peer's
    secret_key: str | None = field(default=None, repr=False)
