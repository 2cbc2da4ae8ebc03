// mma.sync.aligned.m16n8k16.row.col with float32 sums, and ldmatrix.x4.trans: fragments as in the
// PTX ISA 8, "Matrix Fragments for mma.m16n8k16 with floating point type" and "ldmatrix".
#pragma once

namespace emulation {

struct FragmentA {
  unsigned words[4];
};
struct FragmentB {
  unsigned words[2];
};

// D += A B, A [16][16] by rows, B [16][8] by columns. `unpack` turns a word into two numbers.
template <typename Unpack>
EMULATION_CODE static void multiply_16_8_16(const char* place, float (&d)[4],
                                            const unsigned (&a)[4], const unsigned (&b)[2],
                                            Unpack unpack) {
  const unsigned row = lane() / 4, column = lane() % 4 * 2;
  const Meeting first = meet(~0u, a, sizeof a, place);
  float rows[2][16], columns[2][16];
  for (int k = 0; k < 16; k += 2) {
    const FragmentA fragment = first.shown_by<FragmentA>(row * 4 + k % 8 / 2);
    for (int half = 0; half < 2; half++) {
      const float2 pair = unpack(fragment.words[k / 8 * 2 + half]);
      rows[half][k] = pair.x, rows[half][k + 1] = pair.y;
    }
  }
  const Meeting second = meet(~0u, b, sizeof b, place);
  for (int c = 0; c < 2; c++)
    for (int k = 0; k < 16; k += 2) {
      const FragmentB fragment = second.shown_by<FragmentB>((column + c) * 4 + k % 8 / 2);
      const float2 pair = unpack(fragment.words[k / 8]);
      columns[c][k] = pair.x, columns[c][k + 1] = pair.y;
    }
  for (int half = 0; half < 2; half++)
    for (int c = 0; c < 2; c++)
      for (int k = 0; k < 16; k++) d[half * 2 + c] += rows[half][k] * columns[c][k];
}

// Not EMULATION_CODE: sanitizers shall see what each lane reads.
static void load_matrices_transposed(const char* place, unsigned (&words)[4], const void* row) {
  const Meeting meeting = meet(~0u, &row, sizeof row, place);
  for (unsigned matrix = 0; matrix < 4; matrix++) {
    words[matrix] = 0;
    for (unsigned half = 0; half < 2; half++) {
      const unsigned from = matrix * 8 + lane() % 4 * 2 + half;
      const unsigned element = meeting.shown_by<const uint16_t*>(from)[lane() / 4];
      words[matrix] |= element << (16 * half);
    }
  }
}

}  // namespace emulation

#define multiply_16_8_16(T, d, a, b) \
  emulation::multiply_16_8_16(EMULATION_PLACE, d, a, b, Element<T>::unpack)
#define load_matrices_transposed(words, row) \
  emulation::load_matrices_transposed(EMULATION_PLACE, words, row)
