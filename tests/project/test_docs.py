"""The documentation is laid together and built; what it says of the code is what the code says."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import lotan
from lotan.cli import COMMANDS, _parser
from tests.conftest import ROOT

DOCS = ROOT / "docs"
PARTS = runpy.run_path(str(ROOT / "tools" / "build_docs.py"))["PARTS"]
FETCHED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?(https?://[^\"\s>]+)")
READS = re.compile(r"environ(?:\.get)?[(\[]\s*\"([A-Z_]+)\"|\"([A-Z_]+)\" in os\.environ|getenv\(\"([A-Z_]+)\"")


def checkout(folder: Path) -> Path:
    """What a build reads of this checkout, in a folder of its own. The configuration says where the site goes, so is copied."""
    for name in ("lotan", "planner", "messenger", "CONTRIBUTING.md", "CHANGELOG.md"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "tools", folder / "tools")
    shutil.copy2(ROOT / "mkdocs.yml", folder)
    return folder


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(folder / "tools" / "build_docs.py")]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=240)


@pytest.mark.slow
@pytest.mark.processes
def test_the_site_builds_strictly_and_needs_no_network(tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="make setup installs what builds the documentation")
    for name in ("docs", "notebooks", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    done = build(checkout(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "build" / "site"
    assert (site / "search.json").stat().st_size > 100_000
    assert 'id="lotan.Trainer.fit"' in (site / "reference" / "api.html").read_text()
    for page in site.rglob("*.html"):
        assert FETCHED.findall(page.read_text()) == [], page.name
    assert (site / "assets" / "iframe-worker.js").is_file()
    scripts = [script.read_text() for script in site.rglob("*.js")]
    assert not any("unpkg.com/iframe-worker" in script for script in scripts)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("", "No issues found"),
        ("[gone](gone.md)", "page does not exist"),
        pytest.param("[gone](#gone)", "anchor does not exist", marks=pytest.mark.nightly),
        pytest.param("::: lotan.Gone", "lotan.Gone", marks=pytest.mark.nightly),
    ],
    ids=["none", "dead link", "dead anchor", "missing reference"],
)
def test_a_fault_in_a_page_ends_the_build(fault: str, complaint: str, tmp_path: Path) -> None:
    pytest.importorskip("zensical", reason="make setup installs what builds the documentation")
    folder = checkout(tmp_path)
    (folder / "docs" / "developing").mkdir(parents=True)
    for name in ("architecture", "glossary"):  # to which the page on contributing links
        (folder / "docs" / "developing" / f"{name}.md").write_text("# Page\n")
    (folder / "docs" / "index.md").write_text(f"# Page\n\n{fault}\n")
    configuration = folder / "mkdocs.yml"
    configuration.write_text(configuration.read_text().partition("\nnav:")[0])
    done = build(folder)
    assert (done.returncode == 0) == (not fault)
    assert complaint in re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    listed = set(re.findall(r"[\w/-]+\.md", navigation))
    made = {f"tutorials/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.ipynb")}
    made |= {f"benchmarks/{path.name}" for path in (ROOT / "benchmarks" / "results").glob("*.md")}
    made |= {"developing/contributing.md", "developing/changelog.md"}
    assert listed == made | {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}


def test_every_setting_has_a_row_with_words() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(.*)` \| (.+) \|$", PARTS["configuration"](), re.MULTILINE)
    assert [name for name, _, _ in rows] == [field.name for field in fields(lotan.TrainerConfig)]
    assert {name: default for name, default, _ in rows}["optimizer"] == "Adam(lr=0.01)"


def test_every_option_of_every_command_is_listed() -> None:
    page = PARTS["command-line"]()
    for command in COMMANDS:
        section = page.partition(f"## `lotan {command}`\n")[2].partition("\n## ")[0]
        assert section
        shown = subprocess_free_help(command)
        assert [option for option in re.findall(r"^  (--[\w-]+)", shown, re.M) if f"`{option}" not in section] == []


def subprocess_free_help(command: str) -> str:
    actions = _parser([command])._subparsers._group_actions[0]
    return actions.choices[command].format_help()


def test_every_variable_that_the_code_reads_is_described() -> None:
    page = (DOCS / "reference" / "environment.md").read_text()
    read: set[str] = set()
    for package in ("lotan", "planner", "messenger"):
        for path in (ROOT / package).rglob("*.py"):
            read |= {name for names in READS.findall(path.read_text()) for name in names if name}
    assert {"LOTAN_COSTS", "LOTAN_DATA", "JAVA_HOME"} <= read
    assert [name for name in sorted(read) if f"`{name}`" not in page] == []


def test_the_notice_has_the_versions_that_the_jar_shades() -> None:
    notice, pom = (ROOT / "NOTICE").read_text(), (ROOT / "jvm" / "pom.xml").read_text()
    for library, title in (("jeromq", "JeroMQ"), ("msgpack-core", "msgpack-core")):
        version = re.search(rf"<artifactId>{library}</artifactId>\s*<version>([\d.]+)</version>", pom)[1]
        assert f"{title} {version} " in notice


@pytest.mark.parametrize("length", [72, 73])
def test_a_long_commit_subject_is_refused(length: int, tmp_path: Path) -> None:
    (tmp_path / "message").write_text("x" * length + "\n\nA body may be of any length.\n")
    script = ROOT / "tools" / "check_commit_subject.sh"
    done = subprocess.run([str(script), str(tmp_path / "message")], capture_output=True, text=True, timeout=30)
    assert (done.returncode == 0) == (length <= 72)
