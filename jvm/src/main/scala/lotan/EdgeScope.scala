package lotan

/** The edges along which a step runs, and the rows that it makes.
  *
  * @param set
  *   the edge set
  * @param within
  *   the level up to which the step's edges end: in every block these edges are the first
  * @param made
  *   level up to which its output has rows, of vertices or of edges that end there: zeros, where the step makes none
  */
final case class EdgeScope(set: EdgeSet, within: Int = Block.All, made: Int = Block.All) {
  require(
    made == Block.All || (within != Block.All && within <= made),
    s"rows up to level $made of edges that end up to level $within; ${Block.All} is all"
  )

  /** The edges, in the order of edge columns. */
  def order(block: Block): EdgeOrder = block.edges(set).orderUpTo(block.rows(within))

  /** An output of vertices, of zeros. */
  def vertexRows(block: Block, width: Int): Rows = Rows.zeros(block.rows(made), width)

  /** An output of edges, of zeros. */
  def edgeRows(block: Block, width: Int): Rows = Rows.zeros(block.edges(set).endingIn(block.rows(made)), width)

  /** Throws IllegalArgumentException if a column of vertices lacks rows of destinations. */
  def check(block: Block, rows: Rows): Unit = Propagate.check(block, rows, within)
}
