package lotan.messenger;

import jdk.incubator.vector.ByteVector;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.LongVector;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorShuffle;
import jdk.incubator.vector.VectorSpecies;

/**
 * Takes blocks for XXH3 with the JVM's vector operations: a stripe is one vector of eight longs. In Java, for they are
 * compiled to vector instructions only where the species is a static final field.
 *
 * <p>Loaded only where the JVM has the incubator module. See Xxh3.
 */
final class VectorStripes {
  private static final VectorSpecies<Long> LONGS = LongVector.SPECIES_512;
  private static final VectorSpecies<Float> FLOATS = FloatVector.SPECIES_512;
  private static final VectorSpecies<Byte> BYTES = ByteVector.SPECIES_512;
  private static final VectorShuffle<Long> NEIGHBOURS = VectorShuffle.fromArray(LONGS, new int[] {1, 0, 3, 2, 5, 4, 7, 6}, 0);
  private static final int STRIPES = 16; // of a block

  private VectorStripes() {}

  /** Whether the processor has registers for eight longs; narrower ones cannot multiply longs. */
  static boolean fit() {
    return LongVector.SPECIES_PREFERRED.length() == LONGS.length();
  }

  /** Takes blocks that begin at a number of an array. */
  static void blocks(long[] lanes, long[] secret, float[] values, int from, int count) {
    LongVector sums = LongVector.fromArray(LONGS, lanes, 0);
    LongVector last = LongVector.fromArray(LONGS, secret, STRIPES);
    int at = from;
    for (int block = 0; block < count; block++) {
      for (int stripe = 0; stripe < STRIPES; stripe++) {
        LongVector words = FloatVector.fromArray(FLOATS, values, at).reinterpretAsLongs();
        sums = added(sums, words, LongVector.fromArray(LONGS, secret, stripe));
        at += FLOATS.length();
      }
      sums = scrambled(sums, last);
    }
    sums.intoArray(lanes, 0);
  }

  /** Takes blocks that begin at a byte of an array. */
  static void blocks(long[] lanes, long[] secret, byte[] values, int from, int count) {
    LongVector sums = LongVector.fromArray(LONGS, lanes, 0);
    LongVector last = LongVector.fromArray(LONGS, secret, STRIPES);
    int at = from;
    for (int block = 0; block < count; block++) {
      for (int stripe = 0; stripe < STRIPES; stripe++) {
        LongVector words = ByteVector.fromArray(BYTES, values, at).reinterpretAsLongs();
        sums = added(sums, words, LongVector.fromArray(LONGS, secret, stripe));
        at += BYTES.length();
      }
      sums = scrambled(sums, last);
    }
    sums.intoArray(lanes, 0);
  }

  private static LongVector added(LongVector sums, LongVector words, LongVector secret) {
    LongVector keyed = words.lanewise(VectorOperators.XOR, secret);
    LongVector product = keyed.and(0xffffffffL).mul(keyed.lanewise(VectorOperators.LSHR, 32));
    return sums.add(words.rearrange(NEIGHBOURS)).add(product);
  }

  private static LongVector scrambled(LongVector sums, LongVector secret) {
    LongVector mixed = sums.lanewise(VectorOperators.XOR, sums.lanewise(VectorOperators.LSHR, 47));
    return mixed.lanewise(VectorOperators.XOR, secret).mul(0x9e3779b1L);
  }
}
