package lotan

/** Which edges an operator runs along; named as in the Planner. */
sealed abstract class EdgeSet(val name: String) extends Serializable

object EdgeSet {

  /** The graph's own edges. */
  case object Graph extends EdgeSet("graph")

  /** Every self-loop replaced by exactly one per vertex: of the last one's weight, or 1 where there was none. */
  case object SelfLoops extends EdgeSet("self_loops")

  def apply(name: String): EdgeSet =
    Seq(Graph, SelfLoops).find(_.name == name).getOrElse {
      throw new IllegalArgumentException(
        s"there is no edge set '$name'; expected '${Graph.name}' or '${SelfLoops.name}'"
      )
    }
}
