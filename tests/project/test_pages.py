"""Every code block and command of the how-to pages runs; pages keep to their length and to plain sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import ROOT
from tests.project.pages import Block, blocks, check_commands, needs_spark, run

pytestmark = pytest.mark.thorough

PAGES = sorted((ROOT / "docs").rglob("*.md"))
HOW_TO = [page for page in PAGES if page.parent.name == "how-to"]
LOCAL = [page for page in HOW_TO if not needs_spark(page)]
LONGEST = 35  # words of a sentence
FRAGMENT = re.compile(r"```.*?```|<!--.*?-->|^(?:\||#|    |<).*?$", re.DOTALL | re.MULTILINE)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", LOCAL, ids=name_of)
def test_blocks_of_a_how_to_page_run(page: Path, tmp_path: Path) -> None:
    run(page, tmp_path)


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in HOW_TO if needs_spark(page)], ids=name_of)
def test_blocks_of_a_how_to_page_run_on_spark(page: Path, tmp_path: Path, spark: SparkSession) -> None:
    """In the suite's session, which is the one that a page finds."""
    run(page, tmp_path)


@pytest.mark.parametrize("page", HOW_TO, ids=name_of)
def test_a_how_to_page_is_of_a_length_that_is_read(page: Path) -> None:
    words = len(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL).split())
    assert 100 <= words <= 500


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_of_a_page_have_the_options_that_it_gives_them(page: Path) -> None:
    for block in blocks(page):
        if block.language == "sh":
            check_commands(block.text)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_no_sentence_is_longer_than_a_reader_can_hold(page: Path) -> None:
    prose = FRAGMENT.sub("\n\n", page.read_text())
    prose = re.sub(r"^(?:[-*]|\d+\.) ", "\n\n", prose, flags=re.MULTILINE)
    prose = re.sub(r"`[^`]*`", "code", prose)
    sentences = [one for part in re.split(r"\n\s*\n", prose) for one in re.split(r"(?<=[.?!:;])\s", part)]
    assert [one for one in sentences if len(one.split()) > LONGEST] == []


def test_an_option_that_does_not_exist_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(pytest.fail.Exception, match="--epoch-count"):
        check_commands("lotan train --graph digits --epoch-count 3\n")
    assert "unrecognized arguments" in capsys.readouterr().err


def test_a_treatment_belongs_to_the_block_below_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- parsed: too long -->\n```sh\nlotan doctor\n```\n\n```python\n1 / 0\n```\n")
    assert blocks(page) == [
        Block("sh", "lotan doctor\n", "parsed", "too long"),
        Block("python", "1 / 0\n", "run", ""),
    ]
    with pytest.raises(ZeroDivisionError):
        run(page, tmp_path)
