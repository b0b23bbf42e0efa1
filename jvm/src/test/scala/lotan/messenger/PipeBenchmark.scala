package lotan.messenger

import java.util.concurrent.{Callable, Executors, ThreadFactory}

import scala.jdk.CollectionConverters._

/** What `benchmarks/pipe.py` runs in a JVM: partitions of floats through workers and back, one thread each, as Spark's tasks are.
  *
  * Arguments: ADDRESS PARTITIONS ROWS WIDTH WARM_UP ROUNDS CASE.... A case is MODE,CHUNK_ROWS,SHARED_BYTES; each round of it
  * prints its seconds, and the first one after the warm-up `begin` before it.
  */
object PipeBenchmark {
  private val daemons: ThreadFactory = task => {
    val thread = new Thread(task)
    thread.setDaemon(true) // a failure is to end the program
    thread
  }

  def main(arguments: Array[String]): Unit = {
    val Array(partitions, rows, width, warmUp, rounds) = arguments.slice(1, 6).map(_.toInt): @unchecked
    val threads = Executors.newFixedThreadPool(partitions, daemons)
    val all = (0 until partitions).map(new Partition(_, rows, width))
    for ((one, number) <- arguments.drop(6).zipWithIndex) {
      val Array(mode, chunkRows, shared) = one.split(','): @unchecked
      val settings = Settings(sharedBytes = shared.toInt)
      val stage = s"$number" // the coordinator compares what two passes of one stage came to
      val tasks = all.map(new Task(Endpoint(arguments.head), settings, stage, mode, _, chunkRows.toInt))
      for (round <- 0 until warmUp + rounds) {
        if (round == warmUp) println("begin")
        val start = System.nanoTime()
        threads.invokeAll(tasks.asJava).asScala.foreach(_.get())
        println((System.nanoTime() - start) / 1e9)
      }
      if (mode == "round" || mode == "back") all.foreach(_.check())
      Dealers.close("run")
    }
    println("end")
  }

  private final class Partition(val number: Int, val rows: Int, val width: Int) {
    val values: Array[Float] = Array.tabulate(rows * width)(i => (i % 1009) * 0.5f + number)
    val out = new Array[Float](rows * width)

    def check(): Unit = {
      require(values.sameElements(out), s"partition $number came back other than it was sent")
      java.util.Arrays.fill(out, 0f)
    }
  }

  private final class Task(
      endpoint: Endpoint,
      settings: Settings,
      stage: String,
      mode: String,
      all: Partition,
      chunkRows: Int
  ) extends Callable[Unit] {
    private val kept = if (mode == "back") Set("x") else Set.empty[String] // the worker has the rows, and returns them
    private val chunks = (0 until all.rows by chunkRows).zipWithIndex.map { case (first, index) =>
      val count = math.min(chunkRows, all.rows - first)
      val tensor = new Floats(all.values, first * all.width, count, all.width)
      val size = if (mode == "there") 0L else 4L * count * all.width
      OutgoingChunk(index, first, count, index.toLong, Seq("x" -> tensor), kept, Set.empty, size)
    }

    override def call(): Unit = {
      val job = PipeJob("run", 0, stage, mode, all.number, accumulates = false)
      for (returned <- Dealers.pipe(endpoint, settings, job, chunks.iterator); tensor <- returned.tensors.get("y"))
        tensor.copyTo(all.out, returned.firstRow * all.width)
    }
  }
}
