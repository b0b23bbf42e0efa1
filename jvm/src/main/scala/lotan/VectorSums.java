package lotan;

import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.VectorSpecies;

/**
 * Adds rows to a row, strictly one after the other, with the JVM's vector operations: the target stays in registers while
 * all rows are added to one strip of it. In Java, for they are compiled to vector instructions only where the species is a
 * static final field.
 *
 * <p>Loaded only where the JVM has the incubator module; Spark's launcher asks for it. See AddRows.
 */
final class VectorSums {
  private static final VectorSpecies<Float> WIDE = FloatVector.SPECIES_PREFERRED;
  private static final VectorSpecies<Float> NARROW = WIDE.length() > 8 ? FloatVector.SPECIES_256 : FloatVector.SPECIES_128;
  private static final int LANES = WIDE.length();
  private static final int FEW = NARROW.length(); // what is left of a row: with these, width 40 takes a third of the time

  private VectorSums() {}

  /** out[at + j] += rows[0][offsets[0] + j], then rows[1][...], up to `count` rows. */
  static void add(float[] out, int at, float[][] rows, int[] offsets, int count, int width) {
    int j = 0;
    for (; j + 8 * LANES <= width; j += 8 * LANES) eight(out, at + j, rows, offsets, j, count);
    for (; j + 4 * FEW <= width; j += 4 * FEW) four(out, at + j, rows, offsets, j, count);
    for (; j + FEW <= width; j += FEW) one(out, at + j, rows, offsets, j, count);
    for (; j < width; j++) number(out, at + j, rows, offsets, j, count);
  }

  private static void eight(float[] out, int at, float[][] rows, int[] offsets, int j, int count) {
    FloatVector a = FloatVector.fromArray(WIDE, out, at);
    FloatVector b = FloatVector.fromArray(WIDE, out, at + LANES);
    FloatVector c = FloatVector.fromArray(WIDE, out, at + 2 * LANES);
    FloatVector d = FloatVector.fromArray(WIDE, out, at + 3 * LANES);
    FloatVector e = FloatVector.fromArray(WIDE, out, at + 4 * LANES);
    FloatVector f = FloatVector.fromArray(WIDE, out, at + 5 * LANES);
    FloatVector g = FloatVector.fromArray(WIDE, out, at + 6 * LANES);
    FloatVector h = FloatVector.fromArray(WIDE, out, at + 7 * LANES);
    for (int i = 0; i < count; i++) {
      float[] row = rows[i];
      int from = offsets[i] + j;
      a = a.add(FloatVector.fromArray(WIDE, row, from));
      b = b.add(FloatVector.fromArray(WIDE, row, from + LANES));
      c = c.add(FloatVector.fromArray(WIDE, row, from + 2 * LANES));
      d = d.add(FloatVector.fromArray(WIDE, row, from + 3 * LANES));
      e = e.add(FloatVector.fromArray(WIDE, row, from + 4 * LANES));
      f = f.add(FloatVector.fromArray(WIDE, row, from + 5 * LANES));
      g = g.add(FloatVector.fromArray(WIDE, row, from + 6 * LANES));
      h = h.add(FloatVector.fromArray(WIDE, row, from + 7 * LANES));
    }
    a.intoArray(out, at);
    b.intoArray(out, at + LANES);
    c.intoArray(out, at + 2 * LANES);
    d.intoArray(out, at + 3 * LANES);
    e.intoArray(out, at + 4 * LANES);
    f.intoArray(out, at + 5 * LANES);
    g.intoArray(out, at + 6 * LANES);
    h.intoArray(out, at + 7 * LANES);
  }

  private static void four(float[] out, int at, float[][] rows, int[] offsets, int j, int count) {
    FloatVector a = FloatVector.fromArray(NARROW, out, at);
    FloatVector b = FloatVector.fromArray(NARROW, out, at + FEW);
    FloatVector c = FloatVector.fromArray(NARROW, out, at + 2 * FEW);
    FloatVector d = FloatVector.fromArray(NARROW, out, at + 3 * FEW);
    for (int i = 0; i < count; i++) {
      float[] row = rows[i];
      int from = offsets[i] + j;
      a = a.add(FloatVector.fromArray(NARROW, row, from));
      b = b.add(FloatVector.fromArray(NARROW, row, from + FEW));
      c = c.add(FloatVector.fromArray(NARROW, row, from + 2 * FEW));
      d = d.add(FloatVector.fromArray(NARROW, row, from + 3 * FEW));
    }
    a.intoArray(out, at);
    b.intoArray(out, at + FEW);
    c.intoArray(out, at + 2 * FEW);
    d.intoArray(out, at + 3 * FEW);
  }

  private static void one(float[] out, int at, float[][] rows, int[] offsets, int j, int count) {
    FloatVector a = FloatVector.fromArray(NARROW, out, at);
    for (int i = 0; i < count; i++) a = a.add(FloatVector.fromArray(NARROW, rows[i], offsets[i] + j));
    a.intoArray(out, at);
  }

  private static void number(float[] out, int at, float[][] rows, int[] offsets, int j, int count) {
    float a = out[at];
    for (int i = 0; i < count; i++) a += rows[i][offsets[i] + j];
    out[at] = a;
  }
}
