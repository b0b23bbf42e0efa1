"""Diagrams as a Mermaid flowchart, which GitHub, GitLab and most wikis draw from a fenced block of text.

Boxes have the colour of their engine. Arrows show the bytes that they carry, and are dotted if these are gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.explain.diagram import Arrow, Box, Diagram
from planner.explain.sizes import size

CLASSES = """\
classDef graphEngine fill:#dbeafe,stroke:#1d4ed8,color:#111827
classDef dlEngine fill:#ffedd5,stroke:#c2410c,color:#111827
classDef graphBack fill:#dbeafe,stroke:#1d4ed8,color:#111827,stroke-dasharray:5 3
classDef dlBack fill:#ffedd5,stroke:#c2410c,color:#111827,stroke-dasharray:5 3
classDef column fill:#f3f4f6,stroke:#6b7280,color:#111827"""
ESCAPED = '#&<>"`;\\'
"""Characters that would end a label, begin an entity, or be taken for HTML or Markdown in it."""


MOST_ARROWS = 500
"""Mermaid's own limit on arrows, `maxEdges`, above which it draws nothing. Only the configuration of a site can raise it."""


def mermaid(drawn: Sequence[Diagram]) -> str:
    """Return a flowchart with a subgraph for each diagram."""
    body = [line for diagram in drawn for line in _subgraph(diagram)]
    return "\n".join(["flowchart TB", *(f"  {line}" for line in [*_warning(drawn), *CLASSES.splitlines(), *body])])


def _warning(drawn: Sequence[Diagram]) -> list[str]:
    """Return comment lines that say so if there are more arrows than Mermaid draws, and what to do."""
    count = sum(len(diagram.arrows) for diagram in drawn)
    if count <= MOST_ARROWS:
        return []
    return [
        f"%% {count} arrows: Mermaid draws no more than {MOST_ARROWS}, unless maxEdges in its configuration says so.",
        f"%% Take {'one --stage, or ' if len({d.is_graph for d in drawn}) > 1 else ''}--format html.",
    ]


def _subgraph(diagram: Diagram) -> list[str]:
    columns = {name: f"{diagram.key}_c{at}" for at, name in enumerate(_columns(diagram))}
    lines = [
        *(f'{identity}(["{escaped(name)}"]):::column' for name, identity in columns.items()),
        *(_box(diagram.key, box) for box in diagram.boxes),
        *(_arrow(diagram.key, arrow, columns) for arrow in diagram.arrows),
    ]
    return [
        f'subgraph {diagram.key}_ ["{escaped(diagram.title)}"]',
        "  direction TB",
        *(f"  {line}" for line in lines),
        "end",
    ]


def _columns(diagram: Diagram) -> list[str]:
    """Return the names of the columns from before the first step, each once."""
    return list(dict.fromkeys(name for arrow in diagram.arrows if arrow.source is None for name in arrow.names))


def _box(prefix: str, box: Box) -> str:
    label = "<br>".join(escaped(line) for line in (f"{box.key} {box.title}", box.makes) if line)
    kind = box.engine + ("Back" if box.backward else "Engine")
    return f'{prefix}_{box.key}["{label}"]:::{kind}'


def _arrow(prefix: str, arrow: Arrow, columns: dict[str, str]) -> str:
    source = columns[arrow.names[0]] if arrow.source is None else f"{prefix}_{arrow.source}"
    line = "-.->" if arrow.backward else "-->"
    return f'{source} {line}|"{escaped(size(arrow.bytes))}"| {prefix}_{arrow.target}'


def escaped(text: str) -> str:
    """Return text for the inside of a label's quotes, with special characters as Mermaid's numbered entities.

    >>> escaped('a "b" <c>')
    'a #34;b#34; #60;c#62;'
    """
    return "".join(f"#{ord(character)};" if character in ESCAPED else character for character in " ".join(text.split()))
