package lotan

/** The edge sets along which operators run, named as in the Planner: "graph" and "self_loops", or with a type of edges "graph:3"
  * and "self_loops:3"; and with both ends of each edge exchanged "reversed" and "reversed_self_loops".
  *
  * @param loops
  *   true if all self-loops are replaced by one for each vertex. It has the last loop's weight, or 1 if there was none
  * @param relation
  *   the type of the edges in the set; None for edges of all types
  * @param reversed
  *   true if both ends are exchanged. Such sets have blocks of their own: see `LoadedGraph.along`
  */
final case class EdgeSet(loops: Boolean, relation: Option[Int], reversed: Boolean = false) {
  def name: String = {
    val base = Seq(Option.when(reversed)("reversed"), Option.when(loops)("self_loops")).flatten
    (if (base.isEmpty) "graph" else base.mkString("_")) + relation.fold("")(number => s":$number")
  }

  /** The set without the replacement of self-loops. */
  def asGiven: EdgeSet = copy(loops = false)
}

object EdgeSet {

  /** The graph's own edges. */
  val Graph: EdgeSet = EdgeSet(loops = false, None)

  /** The edges with all self-loops replaced by one for each vertex. */
  val SelfLoops: EdgeSet = EdgeSet(loops = true, None)

  private val Name = "(graph|self_loops|reversed|reversed_self_loops)(?::([0-9]{1,9}))?".r

  def apply(name: String): EdgeSet = name match {
    case Name(base, number) =>
      EdgeSet(base.endsWith("self_loops"), Option(number).map(_.toInt), base.startsWith("reversed"))
    case _ =>
      throw new IllegalArgumentException(
        s"there is no edge set '$name'; expected '${Graph.name}' or '${SelfLoops.name}', these with their ends exchanged " +
          "('reversed', 'reversed_self_loops'), or one of a relation: 'graph:0'"
      )
  }
}
