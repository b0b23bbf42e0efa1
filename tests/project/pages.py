"""Code blocks of a page, and what running them means.

Python blocks of one page run in order, in one namespace and one empty folder, and so do `sh` blocks, of which only `lotan`
commands and files written by `cat` are allowed. A comment in the line before a block says what else to do with it:

    <!-- parsed: REASON -->   the commands are only checked: options by the parser, targets by the Makefile, scripts by name
    <!-- file: PATH -->       the block is that file of the checkout
    <!-- marker: spark -->    on the page's first line: all of it needs Spark
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lotan.cli import _parser, main
from tests.conftest import ROOT

BLOCK = re.compile(r"(?:<!-- (parsed|file): ([^>]*?) -->\n)?^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"(?:^|\s)#\s.*$")
HEREDOC = re.compile(r"cat > (\S+) <<'END'\n(.*?\n)END\n", re.DOTALL)
LANGUAGES = {"python", "sh", "text", "toml", "yaml", "properties"}
FOREIGN = {"cp", "docker", "pip", "source", "tensorboard", "python", "env", "git"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    treatment: str  # "run", "parsed" or "file"
    words: str  # why it is only parsed, or which file it is


def blocks(page: Path) -> list[Block]:
    """The blocks of a page in order; every fence has a language."""
    text = page.read_text()
    found = [
        Block(language, code, treatment or "run", words) for treatment, words, language, code in BLOCK.findall(text)
    ]
    assert text.count("\n```") == 2 * len(found), f"{page.name}: a fence without a language, or one that is not closed"
    assert {block.language for block in found} <= LANGUAGES
    return found


def needs_spark(page: Path) -> bool:
    return page.read_text().startswith("<!-- marker: spark -->\n")


def run(page: Path, folder: Path) -> dict[str, Any]:
    """Runs all blocks of a page in `folder`, the present one; returns the names that its Python has made."""
    names: dict[str, Any] = {"__name__": "page"}
    for number, block in enumerate(blocks(page)):
        if block.treatment == "file":
            assert block.text == (ROOT / block.words).read_text()
        elif block.language == "python" and block.treatment == "run":
            exec(compile(block.text, f"{page.name}, block {number}", "exec"), names)
        elif block.language == "sh":
            check_commands(block.text)
            if block.treatment == "run":
                run_commands(block.text, folder)
    return names


def run_commands(text: str, folder: Path) -> None:
    for name, content in HEREDOC.findall(text):
        (folder / name).write_text(content)
    for words in commands(text):
        assert words[0] == "lotan", f"{shlex.join(words)} cannot be run here: mark the block as parsed"
        assert main(words[1:]) == 0, shlex.join(words)


def check_commands(text: str) -> None:
    """Refuses a command with an option that its program does not have, as far as the program is ours."""
    for words in commands(text):
        match words:
            case ["lotan", command, *_]:
                parse(command, words[1:])
            case ["make", target, *_]:
                assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
            case ["spark-submit", *rest]:
                script = next(place for place, word in enumerate(rest) if word.endswith(".py"))
                if "/" in rest[script]:  # else it is the reader's own
                    assert (ROOT / rest[script]).is_file()
                    parse("train", ["train", *rest[script + 1 :]])
            case _:
                assert words[0] in FOREIGN, shlex.join(words)


def parse(command: str, words: list[str]) -> None:
    try:
        _parser([command]).parse_args(words)
    except SystemExit as exited:
        if exited.code != 0:
            pytest.fail(f"lotan {shlex.join(words)}: see above")


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command of a block, comments left out and continued lines joined."""
    for line in HEREDOC.sub("", text).replace("\\\n", " ").splitlines():
        if words := shlex.split(COMMENT.sub("", line)):
            yield words
