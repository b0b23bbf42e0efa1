package lotan.messenger

/** One pass of one stage over one partition: the key of a commit. It holds no attempt number: two attempts are the same work.
  *
  * @param epoch
  *   identifies the parameters: the number that the coordinator began it with
  * @param accumulates
  *   false: nothing is summed over chunks, so a returned chunk needs no replay
  */
final case class PipeJob(
    run: String,
    epoch: Long,
    stage: String,
    mode: String,
    partition: Int,
    accumulates: Boolean
) {
  override def toString: String = s"stage '$stage' ($mode), partition $partition, epoch $epoch of run '$run'"
}
