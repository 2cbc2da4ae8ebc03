// Attention of up to 16 queries of one KV head on a warp's tensor cores, 16 tokens at a time.
//
// The queries are the rows of a matrix: scores are Q K^T and sums P V, by mma.m16n8k16, with P
// rounded to T between the two, and online softmax in float32 (FlashAttention-2: Dao 2023).

constexpr int TILE_TOKENS = 16;

// 8 elements more than a head: rows of 8 lanes then lie in different banks.
template <typename T, int HEAD_DIM> struct TokenTile {
  static constexpr int STRIDE = HEAD_DIM + 8;
  T keys[TILE_TOKENS][STRIDE], values[TILE_TOKENS][STRIDE];
};

template <typename T> __device__ __forceinline__ unsigned word_at(const T* pair) {
  return *reinterpret_cast<const unsigned*>(pair);
}

// Of the warp's matrices, a lane has the rows `row()` + 8 half and the columns `column()` and the
// one after it of every eight. With one half, rows from 8 on are zeros that nobody computes.
template <typename T, int HEAD_DIM, int HALVES> struct TensorRows {
  unsigned query[HEAD_DIM / 16][4];
  float sums[HEAD_DIM / 8][4];
  float maximum[HALVES], total[HALVES];  // the total is of the lane's columns alone

  static __device__ __forceinline__ int row() { return threadIdx.x % 32 / 4; }
  static __device__ __forceinline__ int column() { return threadIdx.x % 4 * 2; }

  // `heads` are the queries of the lane's rows; a null pointer is a row of zeros.
  __device__ __forceinline__ explicit TensorRows(const T* const (&heads)[HALVES]) {
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++) {
#pragma unroll
      for (int part = 0; part < 4; part++) {
        const int half = part % 2, d = k * 16 + part / 2 * 8 + column();
        const T* head = half < HALVES ? heads[half < HALVES ? half : 0] : nullptr;
        query[k][part] = head ? word_at(head + d) : 0u;
      }
    }
#pragma unroll
    for (int n = 0; n < HEAD_DIM / 8; n++)
      sums[n][0] = sums[n][1] = sums[n][2] = sums[n][3] = 0.f;
#pragma unroll
    for (int half = 0; half < HALVES; half++) maximum[half] = MINUS_INFINITY, total[half] = 0.f;
  }

  // The tile's first token is at position `base`; a row attends to positions below its end. In
  // the first tile, that is at least one.
  __device__ __forceinline__ void attend(
      const TokenTile<T, HEAD_DIM>& tile, int base, const int (&ends)[HALVES], float scale) {
    float score[2][4] = {};  // of tokens 0 to 7, and 8 to 15
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++) {
#pragma unroll
      for (int n = 0; n < 2; n++) {
        const T* key = tile.keys[n * 8 + row()] + k * 16 + column();
        const unsigned fragment[2] = {word_at(key), word_at(key + 8)};
        multiply_16_8_16(T, score[n], query[k], fragment);
      }
    }
    unsigned weights[4] = {};
#pragma unroll
    for (int half = 0; half < HALVES; half++) weigh(score, weights, base, half, ends[half], scale);
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < HEAD_DIM / 8; n += 2) {
      unsigned value[4];  // tokens 0 to 7 and 8 to 15 of eight columns, and of the next eight
      load_matrices_transposed(value, tile.values[lane % 16] + n * 8 + lane / 16 * 8);
      const unsigned left[2] = {value[0], value[1]}, right[2] = {value[2], value[3]};
      multiply_16_8_16(T, sums[n], weights, left);
      multiply_16_8_16(T, sums[n + 1], weights, right);
    }
  }

  // Scores into weights, and what there was so far brought to the new maximum.
  __device__ __forceinline__ void weigh(
      float (&score)[2][4], unsigned (&weights)[4], int base, int half, int end, float scale) {
    float highest = maximum[half];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float& one = score[i / 2][half * 2 + i % 2];
      const int position = base + i / 2 * 8 + column() + i % 2;
      one = position < end ? one * scale : MINUS_INFINITY;
      highest = fmaxf(highest, one);
    }
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
    const float shrink = exp2f(maximum[half] - highest);
    maximum[half] = highest, total[half] *= shrink;
#pragma unroll
    for (int n = 0; n < HEAD_DIM / 8; n++)
      sums[n][half * 2] *= shrink, sums[n][half * 2 + 1] *= shrink;
#pragma unroll
    for (int n = 0; n < 2; n++) {
      const float first = exp2f(score[n][half * 2] - highest);
      const float second = exp2f(score[n][half * 2 + 1] - highest);
      total[half] += first + second;
      weights[n * 2 + half] = Element<T>::pack(first, second);
    }
  }

  // The sum of a row's weights, of all columns.
  __device__ __forceinline__ float whole_total(int half) const {
    float whole = total[half];
    whole += __shfl_xor_sync(0xffffffffu, whole, 1);
    whole += __shfl_xor_sync(0xffffffffu, whole, 2);
    return whole;
  }
};
