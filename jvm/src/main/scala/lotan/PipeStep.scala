package lotan

import java.util

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.ObjectMapper

import lotan.messenger.{Endpoint, Settings}

/** A tensor that is sent with a chunk: the sum of some of the pipe's columns.
  *
  * @param tensor
  *   the tensor's name on the wire
  * @param columns
  *   places among the pipe's columns; added in this order
  * @param dtype
  *   as the worker expects it: float32 `[rows x width]`; int64 and int8 are plain numbers `[rows]`
  * @param static
  *   true if it is the same in every pass
  * @param kept
  *   true if several pipes of a pass read it
  * @param spare
  *   the worker asks for the tensor only if it has lost what it computed from it forward
  * @param one
  *   true if all rows are alike, so that one is sent
  */
final case class PipeField(
    tensor: String,
    columns: Seq[Int],
    dtype: String,
    static: Boolean,
    kept: Boolean,
    spare: Boolean,
    one: Boolean
)

/** The in-edges that are sent with a chunk, and the columns at their sources.
  *
  * @param place
  *   among the pipe's neighbourhoods
  * @param sources
  *   tensors, and places among the pipe's halos and own columns
  * @param weighted
  *   true if the edges' weights are sent
  * @param keyed
  *   true if the edges' row keys are sent, for random numbers
  * @param columns
  *   names of the edges' columns that are sent
  */
final case class PipeEdges(
    edges: EdgeSet,
    sources: Seq[PipeField],
    weighted: Boolean,
    keyed: Boolean,
    columns: Seq[String]
)

/** A tensor that is returned: `[rows x width]` for vertices, or one row for each distinct source of `edges`.
  *
  * @param one
  *   true if one row is returned for a chunk
  * @param edges
  *   place among the step's edges; None for vertices
  * @param within
  *   level up to which vertices have a row of it: zeros, beyond those that the pipe runs on
  */
final case class PipeReturned(tensor: String, width: Int, edges: Option[Int], within: Int, one: Boolean)

/** A persisted RDD that only pipes read: this pipe among `readers` in all. */
final case class Spent(rdd: Int, readers: Int)

/** One pass of a stage over all vertices, or those within a level: plain data. */
final case class PipeStep(
    run: String,
    number: Long,
    stage: String,
    mode: String,
    accumulates: Boolean,
    chunkRows: Int,
    within: Int,
    endpoint: Endpoint,
    settings: Settings,
    fields: Seq[PipeField],
    edges: Seq[PipeEdges],
    returned: Seq[PipeReturned],
    spent: Seq[Spent]
) {
  val static: Set[String] = all(_.static) + "keys" ++ edges.flatMap(topology)
  val spare: Set[String] = all(_.spare) -- static
  val kept: Set[String] = all(_.kept) -- static -- spare

  /** Places of columns that are sent only if a worker asks for them. */
  val delayed: Set[Int] = {
    val (spared, others) = fields.partition(_.spare)
    (spared.flatMap(_.columns).toSet -- others.flatMap(_.columns)) -- edges.flatMap(_.sources).flatMap(_.columns)
  }

  private def all(which: PipeField => Boolean): Set[String] =
    (fields ++ edges.flatMap(_.sources)).filter(which).map(_.tensor).toSet

  private def topology(of: PipeEdges): Seq[String] =
    Seq("indptr", "positions", "weight", "edge_keys").map(part => s"$part/${of.edges.name}") ++
      of.columns.map(name => s"edge_column/${of.edges.name}/$name")
}

object PipeStep {

  private val json = new ObjectMapper

  /** From Python's plain data, as JSON: a map handed over as such costs a call for every entry. */
  def of(text: String, endpoint: Endpoint, settings: Settings): PipeStep = {
    val read = new Reading(json.readValue(text, classOf[util.Map[String, Any]]))
    PipeStep(
      run = read.text("run"),
      number = read.number("number"),
      stage = read.text("stage"),
      mode = read.text("mode"),
      accumulates = read.flag("accumulates"),
      chunkRows = read.number("chunk_rows").toInt,
      within = read.number("within").toInt,
      endpoint = endpoint,
      settings = settings,
      fields = read.list("fields").map(field),
      edges = read.list("edges").map { one =>
        PipeEdges(
          EdgeSet(one.text("edges")),
          one.list("sources").map(field),
          one.flag("weighted"),
          one.flag("keyed"),
          one.texts("columns")
        )
      },
      returned = read.list("returned").map { one =>
        val edges = one.number("edges").toInt
        val (width, within) = (one.number("width").toInt, one.number("within").toInt)
        PipeReturned(one.text("tensor"), width, if (edges < 0) None else Some(edges), within, one.flag("one"))
      },
      spent = read.list("spent").map(one => Spent(one.number("rdd").toInt, one.number("readers").toInt))
    )
  }

  private def field(one: Reading): PipeField =
    PipeField(
      one.text("tensor"),
      one.numbers("columns"),
      one.text("dtype"),
      one.flag("static"),
      one.flag("kept"),
      one.flag("spare"),
      one.flag("one")
    )

  /** Typed reading of a map of plain data. */
  final private class Reading(values: util.Map[String, _]) {
    def text(name: String): String = any(name).asInstanceOf[String]
    def flag(name: String): Boolean = any(name).asInstanceOf[java.lang.Boolean]
    def number(name: String): Long = any(name).asInstanceOf[Number].longValue

    def texts(name: String): Seq[String] = any(name).asInstanceOf[util.List[String]].asScala.toSeq

    def numbers(name: String): Seq[Int] =
      any(name).asInstanceOf[util.List[Number]].asScala.map(_.intValue).toSeq

    def list(name: String): Seq[Reading] =
      any(name).asInstanceOf[util.List[util.Map[String, _]]].asScala.map(new Reading(_)).toSeq

    private def any(name: String): Any = {
      require(values.get(name) != null, s"a pipe step came without '$name'")
      values.get(name)
    }
  }
}
