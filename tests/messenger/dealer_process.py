"""A Dealer's task as a process: python -m tests.messenger.dealer_process ADDRESS PARTITION CHUNKS.

Prints a line for each chunk that came back, and at the end one with a checksum of all their rows.
"""

from __future__ import annotations

import sys

from messenger.dealer import Dealer
from messenger.endpoint import Endpoint
from messenger.errors import MessengerError
from tests.messenger.network import QUICK, job
from tests.messenger.numpy_handler import chunks, rows_checksum


def main(address: str, partition: str, count: str) -> None:
    returned = []
    try:
        for chunk in Dealer(Endpoint(address), QUICK).pipe(job(int(partition)), chunks(int(partition), int(count))):
            print(f"chunk {chunk.index}", flush=True)
            returned.append(chunk)
    except MessengerError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    print(f"done {rows_checksum(returned)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
