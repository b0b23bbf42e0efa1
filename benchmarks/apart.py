"""A measurement in a process of its own, and the table that comes of several."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 7200


def run_apart(
    script: str, words: Sequence[str], what: str, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What a script prints as JSON in its last line, run in a fresh process.

    Args:
        script: its path.
        words: its arguments.
        what: is measured, for the error.
        environment: of the process; None: as here.

    Raises:
        SystemExit: it failed.
    """
    command = [sys.executable, script, *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=LIMIT_SECONDS, env=environment)
    if done.returncode:
        raise SystemExit(f"{what} failed with status {done.returncode}; its error is above")
    return json.loads(done.stdout.splitlines()[-1])


def write_table(path: Path, lines: Sequence[str]) -> None:
    """The Markdown, in a folder that may have to be made."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines))


def write_parts(path: Path, title: str, texts: Mapping[str, str], found: Mapping[str, Sequence[str]]) -> None:
    """Write the parts that were measured. The other parts that the file has stay as they are.

    Args:
        path: the file.
        title: its first lines.
        texts: the heading and the text of every part, in order.
        found: the lines of the parts that were measured.
    """
    sections = path.read_text().split("\n\n## ")[1:] if path.exists() else []
    heads = {text.partition("\n")[0]: part for part, text in texts.items()}
    parts = {heads[f"## {section.partition(chr(10))[0]}"]: f"## {section.rstrip()}" for section in sections}
    parts |= {part: "\n".join([texts[part], "", *lines]) for part, lines in found.items()}
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n\n".join([title, *(parts[part] for part in texts if part in parts)]) + "\n")
