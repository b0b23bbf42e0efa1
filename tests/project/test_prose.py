"""What tools/check_prose.py rejects and what it lets pass; and that this checkout passes it."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT

SCRIPT = ROOT / "tools" / "check_prose.py"
check = runpy.run_path(str(SCRIPT))

LONG = " ".join(["word"] * 36)
FITTING = " ".join(["word"] * 35)


@pytest.mark.parametrize("first", ["Of one", "See `reads`, of", "Those that", "What a", "Where its", "Whether all its"])
def test_a_docstring_that_begins_with_a_fragment_is_rejected(first):
    (fault,) = check["text_faults"](f"{first} model.")
    assert f'begins with "{first.split()[0]}"' in fault


@pytest.mark.parametrize("text", ["Once.", "Spark's.", "The rows.", ""])
def test_fewer_than_three_words_are_rejected(text):
    (fault,) = check["text_faults"](text)
    assert "fewer than 3 words" in fault


@pytest.mark.parametrize(
    "text",
    [
        f"{LONG}.",
        f"A summary.\n\n{FITTING},\n{LONG}.",
        f"A summary.\n\nArgs:\n    rows: {LONG}.",
        f"A summary.\n\n- {LONG}\n- short",
        f"A summary.\n\nRaises:\n    ModelError: {FITTING}\n        and {LONG}.",
    ],
)
def test_a_sentence_of_more_than_35_words_is_rejected(text):
    (fault,) = check["text_faults"](text)
    assert "a sentence has" in fault


@pytest.mark.parametrize(
    "text",
    [
        f"{FITTING}. {FITTING}! {FITTING}",
        f"{FITTING}\n\n{FITTING}",
        f"A summary here.\n\n    x = {LONG}\n\nMore.",
        f"A summary here.\n\n>>> f({LONG})\n{LONG}\n",
        f"`{LONG}` is one word here.",
        "A summary here.\n\nArgs:\n" + "".join(f"    name{i}: {FITTING[:-5]}.\n" for i in range(3)),
        f"A summary here.\n\nRaises:\n    ModelError: {FITTING[:-5]}\n    TypeError: {FITTING[:-5]}",
        "Whatever comes is taken.",
    ],
)
def test_good_prose_passes(text):
    assert list(check["text_faults"](text)) == []


def test_every_kind_of_docstring_is_read_and_named_with_its_line():
    source = '"""Of."""\nclass A:\n    """Of a b."""\n    async def f(self):\n        """Once."""\n'
    found = sorted(check["docstring_faults"](source))
    assert [line for line, _ in found] == [1, 1, 3, 5]
    assert found[2][1].startswith("A: ")
    assert found[3][1].startswith("f: ")


def test_faults_of_all_packages_are_found_with_their_files_and_lines(tmp_path):
    for name in ("lotan/engines/a.py", "planner/b.py", "messenger/c.py", "tests/d.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text('"""A module without faults."""\n\n\ndef f():\n    """Of a b."""\n')
    found = [fault.partition(": f: the docstring begins")[0] for fault in check["file_faults"](tmp_path)]
    assert found == ["lotan/engines/a.py:5", "planner/b.py:5", "messenger/c.py:5"]


def test_this_checkout_passes():
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_subjects_are_checked_from_the_commit_that_added_the_check(tmp_path):
    home = tmp_path / "whole"
    _git(tmp_path, "init", "--quiet", str(home))
    assert check["commit_faults"](home) == []  # no commit yet
    _commit(home, "before.txt", "b" * 100)
    _commit(home, "tools/check_prose.py", "c" * 100)
    _commit(home, "fits.txt", "f" * 72)
    assert check["commit_faults"](home) == []
    _commit(home, "long.txt", "g" * 73)
    (fault,) = check["commit_faults"](home)
    assert "73 characters" in fault
    _git(tmp_path, "clone", "--quiet", "--depth", "1", home.as_uri(), str(tmp_path / "shallow"))
    assert check["commit_faults"](tmp_path / "shallow") == []


def test_without_a_repository_no_commit_is_checked(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert check["commit_faults"](tmp_path) == []


def _commit(home, name, subject):
    (home / name).parent.mkdir(exist_ok=True)
    (home / name).write_text(name)
    _git(home, "add", ".")
    _git(home, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message", subject)


def _git(folder, *arguments):
    subprocess.run(["git", *arguments], cwd=folder, check=True, timeout=60)
