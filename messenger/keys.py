"""CurveZMQ key pairs, with which peers on other hosts prove who they are and encrypt their messages.

A keys directory has the files NAME.public and NAME.secret, with one Z85 key each. The Router's name is `router`. The
Router lets in the clients whose public keys are in its directory. A client's directory needs router.public and the
client's own pair.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path

import zmq
import zmq.utils.z85

from messenger.endpoint import Endpoint
from messenger.errors import MessengerError, UnsafeBindError

ROUTER_NAME = "router"


@dataclass(frozen=True)
class CurveKeys:
    """A key pair in Z85. The secret key never appears in its printed form."""

    public: str
    secret: str = field(repr=False)

    @classmethod
    def generate(cls) -> CurveKeys:
        """Return a new random pair."""
        public, secret = zmq.curve_keypair()
        return cls(public.decode(), secret.decode())

    @classmethod
    def load(cls, directory: Path, name: str) -> CurveKeys:
        """Read the pair NAME.public and NAME.secret.

        Raises:
            MessengerError: a file is missing, or the two are no key pair.
        """
        keys = cls(_read(directory / f"{name}.public"), _read(directory / f"{name}.secret"))
        if zmq.curve_public(keys.secret.encode()).decode() != keys.public:
            raise MessengerError(
                f"{directory / name}.public and .secret do not belong together: generate the pair anew"
            )
        return keys

    def save(self, directory: Path, name: str) -> None:
        """Write both files. Only their owner may read the secret one.

        Raises:
            MessengerError: the secret file exists already, or the directory cannot be made.
        """
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise MessengerError(f"cannot make the keys directory {directory}: {error}; name another") from None
        try:
            handle = os.open(directory / f"{name}.secret", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise MessengerError(
                f"{directory / name}.secret exists already; remove it first if it may be replaced"
            ) from None
        with os.fdopen(handle, "w") as file:
            file.write(self.secret + "\n")
        (directory / f"{name}.public").write_text(self.public + "\n")


def create_keys(directory: Path, client: str = "client") -> None:
    """Write a new pair for a Router and one for a client into a keys directory that both may use."""
    for name in (ROUTER_NAME, client):
        CurveKeys.generate().save(directory, name)


def allowed_keys(directory: Path) -> frozenset[str]:
    """Return the public keys of the clients that a Router with this directory lets in."""
    return frozenset(_read(path) for path in directory.glob("*.public") if path.stem != ROUTER_NAME)


def keyed_endpoint(address: str, directory: Path | None, client: str = "client") -> Endpoint:
    """Return a client's endpoint.

    Args:
        address: the Router's address.
        directory: the keys directory, or None for an endpoint without keys.
        client: the name of the client's pair (default: "client").

    Raises:
        MessengerError: keys are missing or malformed.
    """
    if directory is None:
        return Endpoint(address)
    keys = CurveKeys.load(directory, client)
    return Endpoint(address, _read(directory / f"{ROUTER_NAME}.public"), keys.public, keys.secret)


def check_bind(address: str, keys: CurveKeys | None) -> None:
    """Refuse to listen beyond loopback without keys.

    Raises:
        UnsafeBindError: other machines can reach the address, and there are no keys.
        MessengerError: the address has an unknown form.
    """
    scheme, separator, rest = address.partition("://")
    if not separator or scheme not in ("tcp", "ipc"):
        raise MessengerError(f"cannot listen on {address!r}: expected tcp://host:port or ipc://path")
    if keys is None and scheme == "tcp" and not is_loopback(rest.rpartition(":")[0]):
        raise UnsafeBindError(
            f"refusing to listen on {address!r} without keys: anyone who reaches this machine could send work to the"
            " workers. Listen on tcp://127.0.0.1:PORT, or give --keys DIR, which makes keys in DIR where there are none,"
            " and the same keys to every worker"
        )


def is_loopback(host: str) -> bool:
    """Return True if a host, as written in an address, can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _read(path: Path) -> str:
    try:
        key = path.read_text().strip()
        if len(zmq.utils.z85.decode(key)) != 32:
            raise ValueError("not 32 bytes")
    except (OSError, ValueError, KeyError) as error:
        raise MessengerError(
            f"cannot read the key {path}: {error}; lotan router --keys DIR makes a set, to be copied to other hosts"
        ) from None
    return key
