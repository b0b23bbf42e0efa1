"""Names on the wire: told in one file, and the same in Scala."""

from __future__ import annotations

import re
from pathlib import Path

from lotan.stages import tensor_names

ROOT = Path(__file__).resolve().parents[2]
SCALA = ROOT / "jvm/src/main/scala/lotan"
NAMES = re.compile(r'f?"(?:column|source|indptr|positions|weight|edge_keys|output|output_gradient|input_gradient)/')


def test_scala_sends_an_edge_set_under_the_names_that_python_reads() -> None:
    sent = re.findall(r's"([\w/$]*/)\$name"', (SCALA / "Pipe.scala").read_text())
    assert {f"{part}graph" for part in sent} == tensor_names.topology("graph")
    parts = {tensor_names.indptr, tensor_names.positions, tensor_names.weight, tensor_names.edge_keys}
    assert {name("graph") for name in parts} == tensor_names.topology("graph")


def test_scala_and_python_hold_on_to_the_same_tensors() -> None:
    step = (SCALA / "PipeStep.scala").read_text()
    (listed,) = re.findall(r'Seq\((.*)\)\.map\(part => s"\$part/\$\{of\.edges\.name\}"\)', step)
    assert tuple(re.findall(r'"(\w+)"', listed)) == tensor_names.TOPOLOGY
    assert f'all(_.static) + "{tensor_names.KEYS}" ++' in step
    assert f'("{tensor_names.KEYS}" -> known.keys(chunk))' in (SCALA / "Pipe.scala").read_text()


def test_no_other_file_writes_a_name_of_its_own() -> None:
    files = [path for path in (ROOT / "lotan").rglob("*.py") if path.name != "tensor_names.py"]
    found = [f"{path}: {line}" for path in files for line in path.read_text().splitlines() if NAMES.search(line)]
    assert not found, found
