package lotan

/** The edge sets along which operators run, named as in the Planner. */
sealed abstract class EdgeSet(val name: String) extends Serializable

object EdgeSet {

  /** The graph's own edges. */
  case object Graph extends EdgeSet("graph")

  /** The edges with all self-loops replaced by one for each vertex. It has the last loop's weight, or 1 if there was none. */
  case object SelfLoops extends EdgeSet("self_loops")

  def apply(name: String): EdgeSet =
    Seq(Graph, SelfLoops).find(_.name == name).getOrElse {
      throw new IllegalArgumentException(
        s"there is no edge set '$name'; expected '${Graph.name}' or '${SelfLoops.name}'"
      )
    }
}
