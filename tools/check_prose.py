"""Check docstrings and commit subjects for faults of style that a program can find.

`python tools/check_prose.py` prints the faults and exits with 1 if there are any.

A docstring must not begin with one of `FRAGMENTS`, must have at least three words, and no sentence of it may be longer
than `MOST_WORDS` words.

The subject of a commit has at most `MOST_CHARACTERS` characters. Only commits made since this file was added are read.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("lotan", "planner", "messenger")

FRAGMENTS = ("Of", "See", "Those", "What", "Where", "Whether")
FEWEST_WORDS = 3
MOST_WORDS = 35
MOST_CHARACTERS = 72
EXEMPT = (
    "1268602",
    "6438c38",
    "ae0de54",
    "f160f5d",
    "e9294f8",
    "c9508f7",
)  # commits with long subjects that were merged before the check ran on them

_SECTION = re.compile(r"(Args|Attributes|Example|Examples|Note|Raises|Returns|Shapes|Yields):")
_LISTING = {
    "Args",
    "Attributes",
    "Raises",
    "Shapes",
}  # sections with an entry a line, their continuations indented deeper
_ITEM = re.compile(r"(?:[-*]|\d+\.) ")
_CODE = re.compile(r"`[^`]*`")
_END = re.compile(r"(?<![ei]\.[eg])(?<!\bal)(?<!\bvs)[.!?][\"')\]]*\s+")


def docstring_faults(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and a description of each fault in the docstrings of a module's source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                name = getattr(node, "name", "the module")
                for fault in text_faults(text):
                    yield node.body[0].lineno, f"{name}: {fault}"


def text_faults(text: str) -> Iterator[str]:
    """Yield a description of each fault in one docstring.

    >>> list(text_faults("Of one model."))
    ['the docstring begins with "Of", so it is no sentence: say what the thing does or is']
    """
    words = _words(text)
    if words and words[0].strip("\"'(:,.") in FRAGMENTS:
        first = words[0].strip("\"'(:,.")
        yield f'the docstring begins with "{first}", so it is no sentence: say what the thing does or is'
    if len(words) < FEWEST_WORDS:
        yield f"the docstring has fewer than {FEWEST_WORDS} words: {text!r}"
    for sentence in sentences(text):
        length = len(_words(sentence))
        if length > MOST_WORDS:
            yield f"a sentence has {length} words, at most {MOST_WORDS} can be read at once: {sentence[:60]}..."


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a docstring. Code, equations, tables and examples are left out."""
    for block in _blocks(text):
        yield from (sentence for sentence in _END.split(block) if sentence.strip())


def _blocks(text: str) -> Iterator[str]:
    """Yield each paragraph, list item and entry of a section as one line."""
    block: list[str] = []
    section, verbatim = "", False
    for line in [*text.splitlines(), ""]:
        bare = line.strip()
        indent = len(line) - len(line.lstrip())
        heading = _SECTION.fullmatch(bare)
        starts = not bare or heading or _ITEM.match(bare) or (section in _LISTING and indent == 4)
        if starts and block:
            yield " ".join(block)
            block = []
        if not bare:
            verbatim = False
        elif heading and indent == 0:
            section, verbatim = heading[1], False
        elif indent == 0:
            section = "" if not block else section
            verbatim = verbatim or bare.startswith((">>>", "|", "```"))
        elif not section and not block and indent >= 4 and not _ITEM.match(bare):
            verbatim = True
        verbatim = verbatim or bare.startswith(">>>")
        if bare and not heading and not verbatim:
            block.append(bare)


def _words(text: str) -> list[str]:
    return [word for word in _CODE.sub("code", text).split() if re.search(r"\w", word)]


def file_faults(root: Path) -> list[str]:
    """Return the faults of the docstrings of all packages below `root`, each with its file and line."""
    return [
        f"{path.relative_to(root).as_posix()}:{line}: {fault}"
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
        for line, fault in docstring_faults(path.read_text())
    ]


def commit_faults(root: Path) -> list[str]:
    """The commits since the one that added this file whose subjects are too long; none outside a git repository.

    In a shallow clone the oldest commit seems to add every file, so only the commits after it are read.
    """
    this = Path(__file__).resolve().relative_to(ROOT).as_posix()
    added = _git(root, "log", "--diff-filter=A", "--format=%H", "--", this)
    if not added:
        return []
    commits = _git(root, "log", "--no-merges", "--format=%h %s", "HEAD", "--not", *added)
    return [
        f"commit {commit}: the subject has {len(subject)} characters, at most {MOST_CHARACTERS} are shown in full: {subject}"
        for commit, _, subject in (line.partition(" ") for line in commits)
        if len(subject) > MOST_CHARACTERS and not commit.startswith(EXEMPT)
    ]


def _git(root: Path, *arguments: str) -> list[str]:
    try:
        run = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # no git here, or no repository
        return []
    return run.stdout.splitlines()


def main() -> int:
    """Run the check and return the exit status."""
    faults = file_faults(ROOT) + commit_faults(ROOT)
    print("\n".join(faults) if faults else "prose: no faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
