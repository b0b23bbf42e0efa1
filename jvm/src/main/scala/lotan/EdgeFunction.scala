package lotan

/** Arithmetic on the values that an edge reads, as data: the expressions of the Planner (`planner/expressions.py`). */
sealed trait EdgeFunction extends Serializable

object EdgeFunction {

  /** The row at the source: of the operator's n-th column of sources. */
  final case class Source(index: Int) extends EdgeFunction

  /** The row at the destination: of the operator's n-th column of destinations. */
  final case class Destination(index: Int) extends EdgeFunction

  /** The operator's n-th edge column. */
  final case class Edge(index: Int) extends EdgeFunction

  /** The edge's weight, for each number; 1 where there are none. */
  case object Weight extends EdgeFunction

  final case class Constant(value: Float) extends EdgeFunction

  /** An operation of `Binary`, number by number. */
  final case class Two(name: String, a: EdgeFunction, b: EdgeFunction) extends EdgeFunction {
    require(Binary.contains(name), s"no operation '$name' of two; there are ${Binary.keys.mkString(", ")}")
  }

  /** An operation of `Unary`, number by number; `slope` is that below zero, where there is one. */
  final case class One(name: String, a: EdgeFunction, slope: Float = 0f) extends EdgeFunction {
    require(Unary.contains(name), s"no operation '$name' of one; there are ${Unary.keys.mkString(", ")}")
  }

  /** A function from its operations in postfix order, as text: "source:0 destination:0 add leaky_relu:0.2".
    *
    * Throws IllegalArgumentException where that is no function.
    */
  def parse(text: String): EdgeFunction = {
    val stack = text.split(' ').foldLeft(List.empty[EdgeFunction]) { (stack, token) =>
      val name = token.takeWhile(_ != ':')
      val setting = token.drop(name.length + 1)
      (name, stack) match {
        case ("source", _) => Source(setting.toInt) :: stack
        case ("destination", _) => Destination(setting.toInt) :: stack
        case ("edge", _) => Edge(setting.toInt) :: stack
        case ("weight", _) => Weight :: stack
        case ("constant", _) => Constant(setting.toFloat) :: stack
        case (_, b :: a :: rest) if Binary.contains(name) => Two(name, a, b) :: rest
        case (_, a :: rest) if Unary.contains(name) =>
          One(name, a, if (setting.isEmpty) 0f else setting.toFloat) :: rest
        case _ => throw new IllegalArgumentException(s"'$token' is no operation, or lacks an operand, in '$text'")
      }
    }
    require(stack.length == 1, s"'$text' yields ${stack.length} values; expected one")
    stack.head
  }

  type OfTwo = (Array[Float], Array[Float], Int) => Unit
  type OfOne = (Array[Float], Float, Int) => Unit

  // Loops that a JIT compiler sees whole: it makes vector instructions of them, and none of `for` over a range.

  /** a(i) becomes a(i) op b(i), for the first n. */
  val Binary: Map[String, OfTwo] = Map("add" -> add, "sub" -> sub, "mul" -> mul, "div" -> div)

  /** a(i) becomes op a(i), for the first n. */
  val Unary: Map[String, OfOne] = Map(
    "neg" -> neg,
    "exp" -> { (a, _, n) => for (i <- 0 until n) a(i) = math.exp(a(i).toDouble).toFloat },
    "sigmoid" -> { (a, _, n) => for (i <- 0 until n) a(i) = (1 / (1 + math.exp(-a(i).toDouble))).toFloat },
    "tanh" -> { (a, _, n) => for (i <- 0 until n) a(i) = math.tanh(a(i).toDouble).toFloat },
    "leaky_relu" -> leakyRelu,
    "leaky_relu_slope" -> leakyReluSlope
  )

  private def add: OfTwo = { (a, b, n) =>
    var i = 0
    while (i < n) {
      a(i) += b(i)
      i += 1
    }
  }

  private def sub: OfTwo = { (a, b, n) =>
    var i = 0
    while (i < n) {
      a(i) -= b(i)
      i += 1
    }
  }

  private def mul: OfTwo = { (a, b, n) =>
    var i = 0
    while (i < n) {
      a(i) *= b(i)
      i += 1
    }
  }

  private def div: OfTwo = { (a, b, n) =>
    var i = 0
    while (i < n) {
      a(i) /= b(i)
      i += 1
    }
  }

  private def neg: OfOne = { (a, _, n) =>
    var i = 0
    while (i < n) {
      a(i) = -a(i)
      i += 1
    }
  }

  private def leakyRelu: OfOne = { (a, slope, n) =>
    var i = 0
    while (i < n) {
      if (!(a(i) > 0)) a(i) *= slope
      i += 1
    }
  }

  private def leakyReluSlope: OfOne = { (a, slope, n) =>
    var i = 0
    while (i < n) {
      a(i) = if (a(i) > 0) 1f else slope
      i += 1
    }
  }
}
