"""Writes the classes that Spark loads into an archive, from which the Java of tests starts with half the processor time.

    python tools/share_classes.py build/spark-classes.jsa

`make test` calls it once. Java reads the archive as long as its own version and the files of Spark are the same, and else
loads classes as usual.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java whose compiler takes little time."""

LIMIT_SECONDS = 300


def main() -> None:
    """Run some queries in a process of their own, whose Java writes the archive when it ends."""
    place = Path(sys.argv[1]).resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    new = place.with_suffix(".new")
    new.unlink(missing_ok=True)
    print(f"Archiving the classes of Spark for the tests in {place} (once)", flush=True)
    environment = os.environ | {"SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={new} {LIGHT}"}
    environment.pop("SPARK_CONF_DIR", None)  # Java archives no classes beside a folder with files
    command = [sys.executable, "-c", "import share_classes; share_classes.run_some_queries()"]
    done = subprocess.run(
        command, env=environment, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    if done.returncode or not new.is_file():
        print(f"Java wrote no archive, and the tests run without one:\n{done.stdout}{done.stderr}", file=sys.stderr)
        place.write_bytes(b"")
        return
    new.replace(place)


def run_some_queries() -> None:
    """Use what runs on Spark use: tables, joins, sums, Parquet, and Python's workers through Arrow."""
    import pandas as pd
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    with tempfile.TemporaryDirectory() as folder:
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        session = builder.config("spark.local.dir", folder).getOrCreate()
        numbers = session.createDataFrame(pd.DataFrame({"id": range(20), "x": [[0.5, 1.5]] * 20}))
        numbers.write.parquet(f"{folder}/numbers")
        read = session.read.parquet(f"{folder}/numbers").join(numbers.select("id"), "id")
        read.groupBy((F.col("id") % 3).alias("k")).agg(F.count("*"), F.sum(F.size("x"))).collect()
        read.repartition(3).mapInArrow(lambda batches: batches, read.schema).persist().count()
        session.sparkContext.parallelize(range(9), 2).map(lambda one: one + 1).collect()
        session.stop()
    java = SparkContext._gateway.proc
    java.stdin.close()  # it ends then
    java.wait(LIMIT_SECONDS)


if __name__ == "__main__":
    main()
