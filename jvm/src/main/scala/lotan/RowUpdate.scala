package lotan

import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.rdd.RDD

/** One step of an optimizer on learned rows, in the tasks that have them and their gradient. It is torch's arithmetic, number
  * by number and in its order, and its fused multiplications.
  *
  * The rows of a partition lie with what the optimizer knows of them: first the rows, then its state, each as wide as a row.
  *
  * @param numbers
  *   of the step by name, as `lotan/settings/row_steps.py` computes them
  */
sealed abstract class RowUpdate(numbers: Map[String, Double]) extends Serializable {
  private val scale = number("scale")
  private val decay = number("weight_decay")

  /** Returns a number of the step. */
  protected def number(name: String): Float =
    numbers.getOrElse(name, throw new IllegalArgumentException(s"the step has no number '$name'")).toFloat

  /** Changes one number of the rows, at place `i` of all arrays. `gradient` has the weight decay in it. */
  protected def step(rows: Array[Float], state: Array[Array[Float]], i: Int, gradient: Float): Unit

  /** Returns new rows and their new state; those given stay as they are, for a task that is tried again.
    *
    * @param kept
    *   the rows and their state
    * @param gradient
    *   of the first rows; that of the others is 0
    */
  def apply(kept: Array[Rows], gradient: Rows): Array[Rows] = {
    require(
      gradient.width == kept.head.width && gradient.count <= kept.head.count,
      s"a gradient of ${gradient.count} rows of width ${gradient.width} is none of ${kept.head.count} of width ${kept.head.width}"
    )
    val made = kept.map(part => new Rows(part.width, part.values.clone()))
    val (rows, state) = (made.head.values, made.tail.map(_.values))
    val known = gradient.values.length
    var i = 0
    while (i < rows.length) {
      val own = if (i < known) gradient.values(i) * scale else 0f
      step(rows, state, i, if (decay == 0f) own else Math.fma(rows(i), decay, own))
      i += 1
    }
    made
  }
}

object RowUpdate {

  /** Returns the step of an optimizer by the name of torch's class.
    *
    * Throws IllegalArgumentException if there is none.
    */
  def apply(optimizer: String, numbers: util.Map[String, _]): RowUpdate = {
    val plain = numbers.asScala.map { case (name, value) => name -> value.asInstanceOf[Number].doubleValue }.toMap
    optimizer match {
      case "SGD" => new Sgd(plain)
      case "Adagrad" => new Adagrad(plain)
      case "Adam" => new Adam(plain)
      case _ => throw new IllegalArgumentException(s"no learned rows are updated by '$optimizer'")
    }
  }

  /** Puts rows beside their state, which is as wide as they are. */
  def beside(rows: RDD[Rows], state: Seq[RDD[Rows]]): RDD[Array[Rows]] =
    state.foldLeft(rows.map(Array(_))) { (found, part) =>
      found.zipPartitions(part)((all, more) => all.zip(more).map { case (one, other) => one :+ other })
    }

  /** Does a step, lazily. */
  def run(update: RowUpdate, kept: RDD[Array[Rows]], gradient: RDD[Rows]): RDD[Array[Rows]] =
    kept.zipPartitions(gradient)((all, own) => all.zip(own).map { case (one, other) => update(one, other) })

  /** Returns one part of what is kept, up to a level. */
  def part(blocks: RDD[Block], kept: RDD[Array[Rows]], place: Int, within: Int): RDD[Rows] =
    blocks.zipPartitions(kept) { (ofBlock, all) =>
      val (rows, count) = (all.next()(place), ofBlock.next().rows(within))
      Iterator.single(if (count == rows.count) rows else new Rows(rows.width, rows.values.take(count * rows.width)))
    }

  /** Returns the sum of squares, in the order of partitions. */
  def squares(rows: RDD[Rows]): Double = rows
    .map { part =>
      var (sum, i) = (0.0, 0)
      while (i < part.values.length) {
        sum += part.values(i).toDouble * part.values(i)
        i += 1
      }
      sum
    }
    .collect()
    .sum

  final private class Sgd(numbers: Map[String, Double]) extends RowUpdate(numbers) {
    private val rate = number("rate")
    private val momentum = number("momentum")
    private val share = number("share")
    private val nesterov = number("nesterov") != 0f

    override protected def step(rows: Array[Float], state: Array[Array[Float]], i: Int, gradient: Float): Unit = {
      var along = gradient
      if (state.nonEmpty) {
        val moved = Math.fma(gradient, share, state(0)(i) * momentum)
        state(0)(i) = moved
        along = if (nesterov) Math.fma(moved, momentum, gradient) else moved
      }
      rows(i) = Math.fma(along, -rate, rows(i))
    }
  }

  final private class Adagrad(numbers: Map[String, Double]) extends RowUpdate(numbers) {
    private val rate = number("rate")
    private val eps = number("eps")

    override protected def step(rows: Array[Float], state: Array[Array[Float]], i: Int, gradient: Float): Unit = {
      val sum = state(0)(i) + gradient * gradient
      state(0)(i) = sum
      rows(i) += -rate * gradient / (Math.sqrt(sum).toFloat + eps)
    }
  }

  /** Adam, and AdamW by `shrink`, which multiplies rows before their step. */
  final private class Adam(numbers: Map[String, Double]) extends RowUpdate(numbers) {
    private val rate = number("rate")
    private val eps = number("eps")
    private val shrink = number("shrink")
    private val root = number("root")
    private val newMean = number("new_mean")
    private val oldSquare = number("old_square")
    private val newSquare = number("new_square")

    override protected def step(rows: Array[Float], state: Array[Array[Float]], i: Int, gradient: Float): Unit = {
      val before = state(0)(i)
      val mean =
        if (newMean < 0.5f) Math.fma(newMean, gradient - before, before)
        else Math.fma(newMean - 1f, gradient - before, gradient) // as torch's lerp
      val square = state(1)(i) * oldSquare + newSquare * gradient * gradient
      state(0)(i) = mean
      state(1)(i) = square
      val row = if (shrink == 1f) rows(i) else rows(i) * shrink
      rows(i) = row + -rate * mean / (Math.sqrt(square).toFloat / root + eps)
    }
  }
}
