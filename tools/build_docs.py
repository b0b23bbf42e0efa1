"""Lays the pages of the documentation together in build/docs, and builds build/site from them.

    python tools/build_docs.py               what `make docs` runs
    python tools/build_docs.py --pages-only  without the site, so without Zensical

Pages in docs/ are taken as they are. Into them, and beside them, goes what would be wrong sooner or later if it were
written by hand: notebooks, benchmark tables, and the tables and options that the code itself holds. In a page,
`<!-- generated: NAME -->` stands for such a part. A dead link or a missing reference ends the build with an error.
"""

from __future__ import annotations

import argparse
import html
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "build" / "docs"
SITE = ROOT / "build" / "site"
SHIM = "https://unpkg.com/iframe-worker/shim"
PART = re.compile(r"<!-- generated: ([\w-]+) -->")
FIELD = re.compile(r"^    (\w+): (.+?) = (.+?)(?:  # (.*))?$")
COMMENT = re.compile(r"^    # (.*)$")
FACTORY = re.compile(r"field\(default_factory=lambda: (.*)\)$")
FRAME = re.compile(r'<iframe (?P<attributes>[^>]*?) srcdoc="(?P<document>[^"]*)">\s*</iframe>', re.DOTALL)
FRAME_STYLE = re.compile(r' border="1" class="dataframe"| style="text-align: right;"')  # a table as pandas has it
STYLE = re.compile(r"<style scoped>.*?</style>", re.DOTALL)


def main() -> int:
    """The exit status of Zensical, which builds the site."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pages-only", action="store_true", help="do not build the site")
    options = parser.parse_args()
    lay_together()
    if options.pages_only:
        return 0
    shutil.rmtree(SITE, ignore_errors=True)
    # Zensical's cache does not notice that docstrings have changed, so it is cleaned.
    status = subprocess.run([sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=ROOT).returncode
    if status == 0:
        bring_home()
    return status


def lay_together() -> None:
    """Writes all pages anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES)
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        write_tutorial(notebook, PAGES / "tutorials")
    for table in sorted((ROOT / "benchmarks" / "results").glob("*.md")):
        shutil.copy2(table, PAGES / "benchmarks")
    for name in ("CONTRIBUTING", "CHANGELOG"):
        text = (ROOT / f"{name}.md").read_text().replace("](docs/developing/", "](")
        text = text.replace("[Apache License 2.0](LICENSE)", "Apache License 2.0")
        (PAGES / "developing" / f"{name.lower()}.md").write_text(text)
    for page in PAGES.rglob("*.md"):
        text = page.read_text()
        if PART.search(text):
            page.write_text(PART.sub(lambda found: PARTS[found.group(1)](), text))


def bring_home() -> None:
    """Has the site load its one script of another place from itself: what makes search work in pages that are read as files."""
    for page in SITE.rglob("*.html"):
        up = "../" * (len(page.relative_to(SITE).parts) - 1)
        page.write_text(page.read_text().replace(SHIM, f"{up}assets/iframe-worker.js"))
    for script in (SITE / "assets" / "javascripts").glob("*.js"):
        script.write_text(script.read_text().replace(SHIM, "data:text/javascript,"))  # pages have loaded it already


def write_tutorial(notebook: Path, folder: Path) -> None:
    """A notebook with its committed outputs as a page; pictures and whole documents become files beside it."""
    parts = []
    for number, cell in enumerate(json.loads(notebook.read_text())["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            for here, there in (
                (".ipynb)", ".md)"),
                ("](../docs/", "](../"),
                ("](../benchmarks/results/", "](../benchmarks/"),
            ):
                source = source.replace(here, there)
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for place, output in enumerate(cell["outputs"]):
            parts.append(shown(output, folder / f"{notebook.stem}-{number}-{place}"))
    (folder / f"{notebook.stem}.md").write_text("\n\n".join(parts) + "\n")


def shown(output: dict[str, Any], file: Path) -> str:
    """One output of a cell in Markdown."""
    data = {kind: "".join(content) for kind, content in output.get("data", {}).items()}
    if "image/svg+xml" in data:
        file.with_suffix(".svg").write_text(data["image/svg+xml"])
        return f"![Picture that the cell shows]({file.name}.svg){{ .output }}"
    if frame := FRAME.search(data.get("text/html", "")):
        file.with_suffix(".html").write_text(html.unescape(frame["document"]))
        return f'<iframe class="output" src="{file.name}.html" {frame["attributes"]}></iframe>'
    if "text/html" in data:
        lines = FRAME_STYLE.sub("", STYLE.sub("", data["text/html"])).splitlines()
        return '<div class="output">\n' + "".join(line.strip() for line in lines) + "\n</div>"
    text = data.get("text/plain") or "".join(output.get("text", ""))
    return f"``` {{ .text .output }}\n{text.rstrip()}\n```"


def command_line() -> str:
    """Every command with its options, as its parser has them."""
    from lotan.cli import COMMANDS, _parser

    sections = []
    for name in COMMANDS:
        commands = next(iter(subparsers(_parser([name]))))
        sections += described_parser(f"lotan {name}", commands.choices[name], level=2)
    return "\n\n".join(sections)


def subparsers(parser: argparse.ArgumentParser) -> Iterator[argparse._SubParsersAction[argparse.ArgumentParser]]:
    """The actions that begin a command of a command."""
    return (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))


def described_parser(title: str, parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    """A command's heading, what it does, and a table for each group of its options."""
    yield f"{'#' * level} `{title}`"
    yield parser.description or ""
    for group in parser._action_groups:
        options = [action for action in group._group_actions if not isinstance(action, argparse._SubParsersAction)]
        options = [action for action in options if not isinstance(action, argparse._HelpAction)]
        if options:
            named = f"**{group.title[0].upper()}{group.title[1:]}**" if group.title else ""
            yield f"{named}\n\n| option | what it does |\n|---|---|\n" + "\n".join(map(option_row, options))
    for action in subparsers(parser):
        for name, inner in action.choices.items():
            yield from described_parser(f"{title} {name}", inner, level + 1)


def option_row(action: argparse.Action) -> str:
    """A row of a table for one option."""
    given = argparse.HelpFormatter("lotan")._format_args(action, action.dest.upper()) if action.nargs != 0 else ""
    names = ", ".join(action.option_strings) or given
    label = f"{names} {given}".strip() if action.option_strings else names
    return f"| `{label}` | {help_cell(action.help or '')} |"


def help_cell(text: str) -> str:
    """The help of an option; its lines that begin with a space are an example."""
    parts = []
    for stays, lines in groupby(text.splitlines(), lambda line: line.startswith(" ")):
        if stays:
            parts.append("<br>".join(f"`{cell(line.strip())}`" for line in lines) + "<br>")
        else:
            parts.append(cell(" ".join(line.strip() for line in lines)).replace("[", "\\["))
    return " ".join(parts)


def cell(text: str) -> str:
    """Text that a table's cell can hold."""
    return text.replace("|", "\\|")


def configuration() -> str:
    """Every field of TrainerConfig with its default and the comment beside it."""
    import lotan

    rows, above = ["| setting | default | what it is |", "|---|---|---|"], []
    for line in inspect.getsource(lotan.TrainerConfig).splitlines():
        if comment := COMMENT.match(line):
            above.append(comment[1])
        elif found := FIELD.match(line):
            name, _, default, beside = found.groups()
            if factory := FACTORY.search(default):
                default = factory[1]
            words = " ".join([*above, *([beside] if beside else [])])
            rows.append(f"| `{name}` | `{cell(default)}` | {cell(words)} |")
            above = []
        elif line.startswith("    def "):
            break
    return "\n".join(rows)


def table(name: str) -> Callable[[], str]:
    """One of the tables of tools/planner_tables.py."""

    def made() -> str:
        sys.path[:0] = [str(ROOT / "tools")]
        import planner_tables

        return str(getattr(planner_tables, name)())

    return made


PARTS: dict[str, Callable[[], str]] = {
    "command-line": command_line,
    "configuration": configuration,
    "rules": table("rules"),
    "units": table("units"),
    "times": table("times"),
}

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
