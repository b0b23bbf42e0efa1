"""The places of tables: local paths, URIs, tables of Spark's catalog, and SQL queries."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from lotan.errors import GraphError
from lotan.files import expanded

Where = Literal["path", "uri", "table", "query"]

ARROW_FORMATS = ("parquet", "csv", "json", "orc")
"""The formats that Arrow reads, in this process."""
PACKAGES = {
    "delta": "io.delta:delta-spark_2.13:VERSION",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-{minor}_2.13:VERSION",
    "hudi": "org.apache.hudi:hudi-spark{minor}-bundle_2.13:VERSION",
    "avro": "org.apache.spark:spark-avro_2.13:{version}",
}
"""The package that a session needs for each format that Spark does not bring, with Spark's version in braces."""
FORMATS = (*ARROW_FORMATS, *PACKAGES)
"""The formats that Spark reads."""

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_QUERY = re.compile(r"\s*(select|with|from|values|table)\s", re.IGNORECASE)
_TABLE = re.compile(r"(`[^`]+`|[\w-]+)(\.(`[^`]+`|[\w-]+)){0,2}")


@dataclass(frozen=True)
class Place:
    """The place of one table."""

    where: Where
    name: str  # an absolute or relative path, a URI, the table's name, or the query
    format: str = "parquet"  # of a path or URI, one of FORMATS

    @property
    def by_arrow(self) -> bool:
        """True if this process can read the table without Spark, as far as its place and format tell."""
        return self.where in ("path", "uri") and self.format in ARROW_FORMATS

    def __str__(self) -> str:
        return self.name


def is_uri(given: str | Path) -> bool:
    """Return True if a text begins with a scheme, as `s3a://bucket/graph` and `dbfs:/graph` do."""
    return _URI.match(str(given)) is not None


def place_of(given: str | Path, format: str | None = None) -> Place:
    """Return the place that a user's text names.

    A text with a scheme is a URI, and `file:` one is a path. A text that begins with SELECT or WITH is a query. Whatever
    exists as a path, ends like a file or has a slash is a path. Other names are tables of Spark's catalog.

    Args:
        given: the text, or a path.
        format: one of `FORMATS`, or None to take it from the name's ending, or else Parquet.

    Raises:
        GraphError: the format is unknown, or the text names nothing.

    >>> place_of("s3a://bucket/edges.csv")
    Place(where='uri', name='s3a://bucket/edges.csv', format='csv')
    >>> place_of("shop.edges").where, place_of("SELECT * FROM edges").where, place_of("file:///a/b.orc").name
    ('table', 'query', '/a/b.orc')
    """
    if format is not None and format not in FORMATS:
        raise GraphError(f"format is {format!r}; expected one of {', '.join(FORMATS)}.")
    text = str(given)
    if is_uri(text):
        parts = urlsplit(text)
        if parts.scheme.lower() == "file":
            return Place("path", unquote(parts.path), format or _format_of(parts.path))
        return Place("uri", text, format or _format_of(parts.path))
    if _QUERY.match(text) and not _exists(text):
        return Place("query", text)
    path = expanded(given)
    if isinstance(given, Path) or "/" in text or _exists(path) or path.suffix[1:].lower() in FORMATS:
        return Place("path", str(path), format or _format_of(str(path)))
    if _TABLE.fullmatch(text):
        return Place("table", text)
    raise GraphError(
        f"{text[:60]!r} is neither a path nor a URI, nor the name of a table, nor a query. Give one of these."
    )


def _format_of(name: str) -> str:
    suffix = name.rstrip("/").rpartition(".")[2].lower()
    return suffix if suffix in FORMATS else "parquet"


def _exists(path: str | Path) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # the name is too long for a file, or has a zero byte
        return False
