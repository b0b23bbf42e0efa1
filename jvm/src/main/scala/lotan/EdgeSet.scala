package lotan

/** The edge sets along which operators run, named as in the Planner: "graph" and "self_loops", or with a type of edges "graph:3"
  * and "self_loops:3".
  *
  * @param loops
  *   true if all self-loops are replaced by one for each vertex. It has the last loop's weight, or 1 if there was none
  * @param relation
  *   the type of the edges in the set; None for edges of all types
  */
final case class EdgeSet(loops: Boolean, relation: Option[Int]) {
  def name: String = (if (loops) "self_loops" else "graph") + relation.fold("")(number => s":$number")

  /** The set without the replacement of self-loops. */
  def asGiven: EdgeSet = EdgeSet(loops = false, relation)
}

object EdgeSet {

  /** The graph's own edges. */
  val Graph: EdgeSet = EdgeSet(loops = false, None)

  /** The edges with all self-loops replaced by one for each vertex. */
  val SelfLoops: EdgeSet = EdgeSet(loops = true, None)

  private val Name = "(graph|self_loops)(?::([0-9]{1,9}))?".r

  def apply(name: String): EdgeSet = name match {
    case Name(base, number) => EdgeSet(base == "self_loops", Option(number).map(_.toInt))
    case _ =>
      throw new IllegalArgumentException(
        s"there is no edge set '$name'; expected '${Graph.name}' or '${SelfLoops.name}', or one of a relation: 'graph:0'"
      )
  }
}
