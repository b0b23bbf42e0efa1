"""The HTML page of a search: settings and scores, learning curves and a sorted table. It needs no network.

The page is complete without its script. With `page.js`, axes can be brushed, lines followed and the table sorted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from lotan.settings.metric_names import LOWER_IS_BETTER
from lotan.tuning.coordinates import coordinates
from lotan.tuning.curves import curves
from lotan.tuning.table import cells, heads

if TYPE_CHECKING:
    from lotan.tuning.result import Trial, Tuned

TITLE = "Models of a search"


def page(tuned: Tuned) -> str:
    """Return the page as a whole document."""
    shares = _shares(tuned)
    return "\n".join([
        "<!doctype html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">', f"<title>Lotan: {TITLE}</title>",
        f"<style>\n{_resource('page.css')}</style>", "</head>", "<body>",
        f"<header><h1>{TITLE}</h1>{_facts(tuned)}{_notes(tuned.notes)}</header>", "<main>",
        _settings(tuned, shares), _curves(tuned, shares), _table(tuned, shares), "</main>",
        '<div id="tip" role="tooltip" hidden></div>', f"<script>\n{_resource('page.js')}</script>", "</body>", "</html>",
    ])  # fmt: skip


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _shares(tuned: Tuned) -> dict[int, float | None]:
    """Return a number from 0 for the worst score to 1 for the best, by trial number.

    The numbers follow the rank, because scores are too close together for a scale of colours.
    """
    scored = [trial for trial in tuned.trials if trial.value is not None]
    worst = max(1, len(scored) - 1)
    found: dict[int, float | None] = {trial.number: None for trial in tuned.trials}
    return found | {trial.number: 1 - place / worst for place, trial in enumerate(scored)}


def _facts(tuned: Tuned) -> str:
    facts = {"search": _search(tuned.search), "models": f"{len(tuned.trials)}{_ended(tuned.trials)}"}
    graph: Mapping[str, Any] = tuned.batch.get("graph", {})
    if graph:
        facts["graph"] = f"{graph['vertices']:,} vertices, {graph['edges']:,} edges, {graph['width']:,} features"
    if "engine" in tuned.batch:
        facts["engine"] = str(tuned.batch["engine"])
    best = next((trial for trial in tuned.trials if trial.value is not None), None)
    if best is not None:
        named = best.settings.words(tuned.varied) or f"model {best.number}"
        facts["best"] = f"val {tuned.monitor} {best.value:.4f}: {named}"
    return (
        "<dl>" + "".join(f"<div><dt>{name}</dt><dd>{escape(said)}</dd></div>" for name, said in facts.items()) + "</dl>"
    )


def _search(search: Mapping[str, Any]) -> str:
    return (
        f"{search['search']}, one in {search['eta']} goes on"
        if search["search"] == "halving"
        else str(search["search"])
    )


def _ended(trials: Sequence[Trial]) -> str:
    """Return the number of models that did not reach their last epoch, by state, in words."""
    states = [state for state in ("stopped early", "stopped", "diverged") if any(one.state == state for one in trials)]
    counts = [f"{sum(one.state == state for one in trials)} {state}" for state in states]
    return f" ({', '.join(counts)})" if counts else ""


def _notes(notes: Sequence[str]) -> str:
    return "".join(f'<p class="note">{escape(note)}</p>' for note in notes)


def _settings(tuned: Tuned, shares: Mapping[int, float | None]) -> str:
    better = "lower" if tuned.monitor in LOWER_IS_BETTER else "higher"
    return (
        '<section><div class="bar"><h2>Settings and scores</h2>'
        '<button type="button" id="reset" hidden>show all</button></div>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Settings and scores">{coordinates(tuned, shares)}</div>'
        f'<p class="legend"><span>worst</span><i class="ramp"></i><span>best val {escape(tuned.monitor)} ({better} is better),'
        ' by rank</span><span class="dashes">without a score</span></p>'
        '<p class="hint">Drag along an axis to keep the models that pass there, or move its two handles with Tab and the '
        "arrow keys; Escape shows all. Point at a line, or a row of the table, to follow a model everywhere.</p></section>"
    )


def _curves(tuned: Tuned, shares: Mapping[int, float | None]) -> str:
    figures = "".join(
        f"<figure><figcaption>{escape(title)}</figcaption>{picture}</figure>"
        for title, picture in curves(tuned, shares)
    )
    return f'<section><h2>Learning curves</h2><div class="pictures">{figures}</div></section>'


def _table(tuned: Tuned, shares: Mapping[int, float | None]) -> str:
    names = "".join(
        f'<th scope="col" aria-sort="none"><button type="button">{escape(name)}</button></th>'
        for name in heads(tuned.varied, tuned.monitor)
    )
    rows = "\n".join(_row(trial, tuned, shares[trial.number]) for trial in tuned.trials)
    return (
        '<section><div class="bar"><h2>Models, best first</h2><span id="count" role="status"></span></div>'
        f'<div class="scroll"><table><thead><tr>{names}</tr></thead>\n<tbody>{rows}</tbody></table></div></section>'
    )


def _row(trial: Trial, tuned: Tuned, share: float | None) -> str:
    colour = ' class="none"' if share is None else f' style="--share: {share:.3f}"'
    first, *rest = cells(trial, tuned.varied, tuned.monitor)
    found = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
    return (
        f'<tr data-trial="{trial.number}" tabindex="-1"><th scope="row"><i{colour}></i>{escape(first)}</th>{found}</tr>'
    )
