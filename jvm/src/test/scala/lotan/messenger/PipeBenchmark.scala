package lotan.messenger

import java.util.concurrent.{Callable, Executors}

import scala.jdk.CollectionConverters._

/** What `benchmarks/pipe.py` runs in a JVM: partitions of floats through workers and back, one thread each, as Spark's tasks are.
  *
  * Arguments: ADDRESS SHARED_BYTES MODE PARTITIONS ROWS WIDTH CHUNK_ROWS ROUNDS. Prints the seconds of each round.
  */
object PipeBenchmark {
  def main(arguments: Array[String]): Unit = {
    val Array(address, shared, mode) = arguments.take(3): @unchecked
    val Array(partitions, rows, width, chunkRows, rounds) = arguments.drop(3).map(_.toInt): @unchecked
    val settings = Settings(sharedBytes = shared.toInt)
    val threads = Executors.newFixedThreadPool(partitions)
    val tasks = (0 until partitions).map(new Task(Endpoint(address), settings, mode, _, rows, width, chunkRows))
    for (_ <- 0 until rounds) {
      val start = System.nanoTime()
      threads.invokeAll(tasks.asJava).asScala.foreach(_.get())
      println((System.nanoTime() - start) / 1e9)
    }
    tasks.foreach(_.check())
    threads.shutdown()
    Dealers.close("run")
  }

  private final class Task(
      endpoint: Endpoint,
      settings: Settings,
      mode: String,
      partition: Int,
      rows: Int,
      width: Int,
      chunkRows: Int
  ) extends Callable[Unit] {
    private val values = Array.tabulate(rows * width)(i => (i % 1009) * 0.5f + partition)
    private val out = new Array[Float](rows * width)
    private val kept = mode == "back" // the worker has the rows, and returns them
    private val chunks = (0 until rows by chunkRows).zipWithIndex.map { case (first, index) =>
      val count = math.min(chunkRows, rows - first)
      val tensor = new Floats(values, first * width, count, width)
      val size = if (mode == "there") 0L else 4L * count * width
      OutgoingChunk(
        index,
        first,
        count,
        index.toLong,
        Seq("x" -> tensor),
        if (kept) Set("x") else Set.empty,
        Set.empty,
        size
      )
    }

    override def call(): Unit = {
      val job = PipeJob("run", 0, "s", mode, partition, accumulates = false)
      for (returned <- Dealers.pipe(endpoint, settings, job, chunks.iterator); tensor <- returned.tensors.get("y"))
        tensor.copyTo(out, returned.firstRow * width)
    }

    def check(): Unit =
      require(mode == "there" || values.sameElements(out), s"partition $partition came back other than it was sent")
  }
}
