// Paged decode on tensor cores: a KV head's queries, up to GROUP of them, are the rows of a matrix.
//
// Each warp goes over tiles of 16 tokens of its own: K and V come by asynchronous copies into one
// of STAGES places while the tile before is computed. Scores are Q K^T and sums P V, P rounded to
// T between the two (FlashAttention-2: Dao 2023). Arguments, layouts and grid: splits.cuh.

constexpr int STAGES = 2;
constexpr int TILE_TOKENS = 16;

// 8 elements more than a head: rows of 8 lanes then lie in different banks.
template <typename T, int HEAD_DIM> struct TokenTile {
  static constexpr int STRIDE = HEAD_DIM + 8;
  T keys[TILE_TOKENS][STRIDE], values[TILE_TOKENS][STRIDE];
};

template <typename T> __device__ __forceinline__ unsigned word_at(const T* pair) {
  return *reinterpret_cast<const unsigned*>(pair);
}

template <typename T, int HEAD_DIM, int GROUP, int BLOCK>
__global__ void __launch_bounds__(DECODE_WARPS * 32) decode_tensor(
    T* __restrict__ out, float* __restrict__ partial_values,
    float* __restrict__ partial_statistics, const T* __restrict__ queries,
    const T* __restrict__ keys, const T* __restrict__ values,
    const int* __restrict__ items, const int* __restrict__ block_table,
    const int* __restrict__ tokens, const int* __restrict__ slots,
    const int* __restrict__ lengths, long long query_stride, int table_width, int group,
    int split_tokens, float scale) {
  constexpr int HALVES = GROUP / 8;  // of the 16 rows, those that can be queries
  constexpr int HEAD_VECTORS = HEAD_DIM / 8, STEP = DECODE_WARPS * TILE_TOKENS;
  using Tile = TokenTile<T, HEAD_DIM>;
  DYNAMIC_SHARED(Tile, tiles);  // [DECODE_WARPS][STAGES]
  const SplitWork<GROUP> work(items, lengths, group, split_tokens);
  if (work.row < 0) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = lane / 4, column = lane % 4 * 2;  // of a fragment: also row + 8, column + 1
  const int* blocks = block_table + static_cast<long long>(slots[work.row]) * table_width;
  Tile* own_tiles = tiles + warp * STAGES;

  const T* first_query = queries + tokens[work.row] * query_stride + work.first_head * HEAD_DIM;
  unsigned query[HEAD_DIM / 16][4];
#pragma unroll
  for (int k = 0; k < HEAD_DIM / 16; k++) {
#pragma unroll
    for (int part = 0; part < 4; part++) {
      const int g = row + part % 2 * 8, d = k * 16 + part / 2 * 8 + column;
      query[k][part] = g < work.queries ? word_at(first_query + g * HEAD_DIM + d) : 0u;
    }
  }

  const auto fetch = [&](int stage, int base) {
#pragma unroll
    for (int i = lane; i < TILE_TOKENS * HEAD_VECTORS; i += 32) {
      const int token = i / HEAD_VECTORS, d = i % HEAD_VECTORS * 8;
      const bool there = base + token < work.end;  // what lies beyond may be anything, NaN too
      const long long at = there ? pool_offset<HEAD_DIM, BLOCK>(
                                       blocks, base + token, work.kv_head, work.kv_heads) + d
                                 : 0;
      copy_async_16(own_tiles[stage].keys[token] + d, keys + at, there);
      copy_async_16(own_tiles[stage].values[token] + d, values + at, there);
    }
  };

  float sums[HEAD_DIM / 8][4] = {}, maximum[HALVES], total[HALVES] = {};
#pragma unroll
  for (int half = 0; half < HALVES; half++) maximum[half] = MINUS_INFINITY;
  const int warp_begin = work.begin + warp * TILE_TOKENS;
  if (warp_begin < work.end) fetch(0, warp_begin);
  commit_copies();
  int stage = 0;
  for (int base = warp_begin; base < work.end; base += STEP) {
    if (base + STEP < work.end) fetch((stage + 1) % STAGES, base + STEP);
    commit_copies();
    wait_for_copies<STAGES - 1>();
    __syncwarp();  // every lane's copies are there for the others
    const Tile& tile = own_tiles[stage];

    float score[2][4] = {};  // of tokens 0 to 7, and 8 to 15
#pragma unroll
    for (int k = 0; k < HEAD_DIM / 16; k++) {
#pragma unroll
      for (int n = 0; n < 2; n++) {
        const T* key = tile.keys[n * 8 + row] + k * 16 + column;
        const unsigned fragment[2] = {word_at(key), word_at(key + 8)};
        multiply_16_8_16(T, score[n], query[k], fragment);
      }
    }
    unsigned weights[4] = {};
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
      float highest = maximum[half];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float& one = score[i / 2][half * 2 + i % 2];
        const int position = base + i / 2 * 8 + column + i % 2;
        one = position < work.end ? one * scale : MINUS_INFINITY;
        highest = fmaxf(highest, one);
      }
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
      const float shrink = shrink_to(highest, maximum[half]);
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
#pragma unroll
    for (int n = 0; n < HEAD_DIM / 8; n += 2) {
      unsigned value[4];  // tokens 0 to 7 and 8 to 15 of eight columns, and of the next eight
      load_matrices_transposed(value, tile.values[lane % 16] + n * 8 + lane / 16 * 8);
      const unsigned left[2] = {value[0], value[1]}, right[2] = {value[2], value[3]};
      multiply_16_8_16(T, sums[n], weights, left);
      multiply_16_8_16(T, sums[n + 1], weights, right);
    }
    __syncwarp();  // nobody reads the tile any more
    stage = (stage + 1) % STAGES;
  }

  __syncthreads();  // the tiles' memory is used anew
  float* warp_sums = reinterpret_cast<float*>(tiles);                    // [WARPS][GROUP][HEAD_DIM]
  float* warp_statistics = warp_sums + DECODE_WARPS * GROUP * HEAD_DIM;  // [WARPS][GROUP][2]
#pragma unroll
  for (int half = 0; half < HALVES; half++) {
    const int g = warp * GROUP + half * 8 + row;
    float warp_total = total[half];
    warp_total += __shfl_xor_sync(0xffffffffu, warp_total, 1);
    warp_total += __shfl_xor_sync(0xffffffffu, warp_total, 2);
    if (column == 0) {
      warp_statistics[g * 2] = maximum[half];
      warp_statistics[g * 2 + 1] = warp_total;
    }
#pragma unroll
    for (int n = 0; n < HEAD_DIM / 8; n++) {
      warp_sums[g * HEAD_DIM + n * 8 + column] = sums[n][half * 2];
      warp_sums[g * HEAD_DIM + n * 8 + column + 1] = sums[n][half * 2 + 1];
    }
  }
  __syncthreads();
  finish_split<T, HEAD_DIM, GROUP>(
      work, warp_sums, warp_statistics, out, partial_values, partial_statistics, tokens,
      split_tokens);
}
