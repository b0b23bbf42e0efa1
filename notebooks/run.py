"""Runs the notebooks from top to bottom, and writes their outputs into them.

    python notebooks/run.py                      all of them
    python notebooks/run.py 02_explore_plans     some
    python notebooks/run.py --check              writes nothing; only says whether they run

What is written is what a reader sees: outputs of cells, but nothing of what Spark's Java process says on standard error, and not
when a cell ran. Some cells print seconds that they have measured, so run them on a machine that does nothing else.
The notebooks are files of the checkout: without --check, git shows them as changed afterwards.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

FOLDER = Path(__file__).resolve().parent
CELL_SECONDS = 240  # that a cell may take
START_SECONDS = 120  # that a kernel may take to start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    names = [path.stem for path in sorted(FOLDER.glob("*.ipynb"))]
    parser.add_argument("notebooks", nargs="*", metavar="NOTEBOOK", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    if unknown := [name for name in options.notebooks if name not in names]:
        parser.error(f"there is no notebook {', '.join(unknown)}; there are {', '.join(names)}")
    kernel_environment()
    failed = [name for name in options.notebooks or names if not run(FOLDER / f"{name}.ipynb", options.check)]
    return 1 if failed else 0


def kernel_environment() -> None:
    """What a kernel and Spark's Python workers are to find: this checkout and this interpreter, and rates of no machine."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(FOLDER.parent), os.environ.get("PYTHONPATH")]))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["LOTAN_COSTS"] = "off"
    # Torch's threads that wait for one another leave their cores to other work: what a cell measures depends less on that.
    os.environ["OMP_WAIT_POLICY"] = "passive"


def run(path: Path, check: bool) -> bool:
    """Whether a notebook ran to its end."""
    book = nbformat.read(path, as_version=4)
    started = time.perf_counter()
    client = NotebookClient(
        book,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        startup_timeout=START_SECONDS,
        record_timing=False,
        resources={"metadata": {"path": FOLDER}},
    )
    try:
        client.execute()
    except CellExecutionError as error:
        print(f"{path.stem}: {error}", file=sys.stderr, flush=True)
        return False
    print(f"{path.stem}: {time.perf_counter() - started:.0f} s", flush=True)
    if not check:
        clean(book)
        nbformat.write(book, path)
    return True


def clean(book: nbformat.NotebookNode) -> None:
    """Leave out what differs from machine to machine and says nothing."""
    book.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    for cell in book.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.outputs = joined([output for output in cell.outputs if output.get("name") != "stderr"])


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """What was printed in a row, as one output: how often the kernel looked is chance."""
    found: list[nbformat.NotebookNode] = []
    for output in outputs:
        if found and output.output_type == "stream" == found[-1].output_type:
            found[-1].text += output.text
        else:
            found.append(output)
    return found


if __name__ == "__main__":
    sys.exit(main())
