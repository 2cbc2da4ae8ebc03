// Paged decode on CUDA cores: attention of one token a sequence over its KV blocks.
//
// The context is cut into splits of `split_tokens`, each a thread block's work, and the splits'
// results are merged by their softmax statistics (FlashDecoding: Dao, Haziza, Massa, Sizov 2023).
// The length of a split does not depend on the batch, so neither does a row's result. Within a
// split: online softmax (FlashAttention-2: Dao 2023) over blocks found through a table
// (PagedAttention: Kwon et al. 2023). K and V are read once for all query heads of a KV head, up
// to GROUP of them.
//
//   out, queries           T [tokens, heads, HEAD_DIM], `query_stride` elements from one token's
//                          queries to the next one's
//   keys, values           T [blocks, kv_heads, BLOCK, HEAD_DIM]: a layer's pool
//   block_table            int [slots, table_width]; only entries below a row's length are read
//   tokens, slots, lengths int [rows]: where a row's query and result are, its line of the block
//                          table, and how many tokens it attends to (0: the result is zeros)
//   partial_values         float [rows, heads, splits, HEAD_DIM], and
//   partial_statistics     float [rows, heads, splits, 2] (maximum of the scores, sum of their
//                          exponentials): written by rows of more than one split
//   scale                  of a score, times log2(e): exponentials are powers of two here
//
// Grid (splits, kv_heads * tiles of GROUP queries, rows), DECODE_WARPS warps.

constexpr int DECODE_WARPS = 4;

// A token's K (or V) is held by COUNT neighbouring lanes, WORDS words of two elements each.
template <int HEAD_DIM> struct Lanes {
  static constexpr int COUNT = HEAD_DIM == 64 ? 8 : 16;
  static constexpr int WORDS = HEAD_DIM / 2 / COUNT;

  // Which of a head's words the lane's j-th is: loads of neighbours are side by side.
  static __device__ __forceinline__ int word(int lane, int j) {
    return WORDS == 4 ? lane * WORDS + j : j * COUNT + lane;
  }

  static __device__ __forceinline__ void load(
      unsigned (&words)[WORDS], const void* __restrict__ head, int lane) {
    if constexpr (WORDS == 4) {
      const uint4 four = __ldg(reinterpret_cast<const uint4*>(head) + lane);
      words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
    } else {
#pragma unroll
      for (int j = 0; j < WORDS; j++)
        words[j] = __ldg(reinterpret_cast<const unsigned*>(head) + word(lane, j));
    }
  }
};

template <typename T, int HEAD_DIM, int GROUP, int BLOCK>
__global__ void __launch_bounds__(DECODE_WARPS * 32) decode(
    T* __restrict__ out, float* __restrict__ partial_values,
    float* __restrict__ partial_statistics, const T* __restrict__ queries,
    const T* __restrict__ keys, const T* __restrict__ values,
    const int* __restrict__ block_table, const int* __restrict__ tokens,
    const int* __restrict__ slots, const int* __restrict__ lengths, long long query_stride,
    int table_width, int group, int split_tokens, float scale) {
  using Lane = Lanes<HEAD_DIM>;
  constexpr int WORDS = Lane::WORDS, WARP_TOKENS = 32 / Lane::COUNT;
  constexpr int STEP = DECODE_WARPS * WARP_TOKENS;  // tokens under way in the thread block,
  constexpr int UNROLL = GROUP > 4 ? 2 : 4;         // and in each lane
  const int tiles = (group + GROUP - 1) / GROUP;
  const int kv_head = blockIdx.y / tiles, kv_heads = gridDim.y / tiles;
  const int first_query = blockIdx.y % tiles * GROUP;
  const int first_head = kv_head * group + first_query, heads = kv_heads * group;
  const int tile_queries = min(GROUP, group - first_query);
  const int split = blockIdx.x, row = blockIdx.z, length = lengths[row];
  const int begin = split * split_tokens, end = min(length, begin + split_tokens);
  if (split > 0 && begin >= length) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % Lane::COUNT;
  const int warp_token = threadIdx.x % 32 / Lane::COUNT;

  float query[GROUP][2 * WORDS], sums[GROUP][2 * WORDS], maximum[GROUP], total[GROUP];
#pragma unroll
  for (int g = 0; g < GROUP; g++) {
    unsigned words[WORDS] = {};
    if (g < tile_queries)
      Lane::load(words, queries + tokens[row] * query_stride + (first_head + g) * HEAD_DIM, lane);
#pragma unroll
    for (int j = 0; j < WORDS; j++) {
      const float2 pair = Element<T>::unpack(words[j]);
      query[g][2 * j] = pair.x * scale, query[g][2 * j + 1] = pair.y * scale;
      sums[g][2 * j] = sums[g][2 * j + 1] = 0.f;
    }
    maximum[g] = MINUS_INFINITY, total[g] = 0.f;
  }

  const int* blocks = block_table + static_cast<long long>(slots[row]) * table_width;
  for (int base = begin; base < end; base += STEP * UNROLL) {
    const int first = base + warp * WARP_TOKENS + warp_token;
    unsigned key[UNROLL][WORDS] = {}, value[UNROLL][WORDS] = {};
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const int position = first + u * STEP;
      if (position < end) {  // what lies beyond may be anything, NaN too
        const long long at = pool_offset<HEAD_DIM, BLOCK>(blocks, position, kv_head, kv_heads);
        Lane::load(key[u], keys + at, lane);
        Lane::load(value[u], values + at, lane);
      }
    }
#pragma unroll
    for (int g = 0; g < GROUP; g++) {
      float score[UNROLL], highest = maximum[g];
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        score[u] = 0.f;
#pragma unroll
        for (int j = 0; j < WORDS; j++) {
          const float2 pair = Element<T>::unpack(key[u][j]);
          score[u] += query[g][2 * j] * pair.x + query[g][2 * j + 1] * pair.y;
        }
#pragma unroll
        for (int apart = Lane::COUNT / 2; apart; apart /= 2)
          score[u] += __shfl_xor_sync(0xffffffffu, score[u], apart);
        if (first + u * STEP >= end) score[u] = MINUS_INFINITY;
        highest = fmaxf(highest, score[u]);
      }
      if (highest == MINUS_INFINITY) continue;  // no token of this lane's yet
      const float shrink = exp2f(maximum[g] - highest);
      maximum[g] = highest, total[g] *= shrink;
#pragma unroll
      for (int e = 0; e < 2 * WORDS; e++) sums[g][e] *= shrink;
#pragma unroll
      for (int u = 0; u < UNROLL; u++) {
        const float weight = exp2f(score[u] - highest);
        total[g] += weight;
#pragma unroll
        for (int j = 0; j < WORDS; j++) {
          const float2 pair = Element<T>::unpack(value[u][j]);
          sums[g][2 * j] += weight * pair.x, sums[g][2 * j + 1] += weight * pair.y;
        }
      }
    }
  }

  // The lanes of a warp that had other tokens, then the warps.
  DYNAMIC_SHARED(float, warp_sums);                                   // [WARPS][GROUP][HEAD_DIM]
  float* warp_statistics = warp_sums + DECODE_WARPS * GROUP * HEAD_DIM;  // [WARPS][GROUP][2]
#pragma unroll
  for (int g = 0; g < GROUP; g++) {
    float highest = maximum[g];
#pragma unroll
    for (int apart = Lane::COUNT; apart < 32; apart *= 2)
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, apart));
    const float shrink = maximum[g] == MINUS_INFINITY ? 0.f : exp2f(maximum[g] - highest);
    float warp_total = total[g] * shrink;
#pragma unroll
    for (int apart = Lane::COUNT; apart < 32; apart *= 2)
      warp_total += __shfl_xor_sync(0xffffffffu, warp_total, apart);
    float* to = warp_sums + (warp * GROUP + g) * HEAD_DIM;
#pragma unroll
    for (int e = 0; e < 2 * WORDS; e++) {
      float sum = sums[g][e] * shrink;
#pragma unroll
      for (int apart = Lane::COUNT; apart < 32; apart *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, apart);
      if (warp_token == 0) to[2 * Lane::word(lane, e / 2) + e % 2] = sum;
    }
    if (threadIdx.x % 32 == 0) {
      warp_statistics[(warp * GROUP + g) * 2] = highest;
      warp_statistics[(warp * GROUP + g) * 2 + 1] = warp_total;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < tile_queries * HEAD_DIM; i += DECODE_WARPS * 32) {
    const int g = i / HEAD_DIM, d = i % HEAD_DIM, head = first_head + g;
    float highest = MINUS_INFINITY, all = 0.f, sum = 0.f;
#pragma unroll
    for (int w = 0; w < DECODE_WARPS; w++)
      highest = fmaxf(highest, warp_statistics[(w * GROUP + g) * 2]);
#pragma unroll
    for (int w = 0; w < DECODE_WARPS; w++) {
      const float warp_highest = warp_statistics[(w * GROUP + g) * 2];
      const float shrink = warp_highest == MINUS_INFINITY ? 0.f : exp2f(warp_highest - highest);
      all += warp_statistics[(w * GROUP + g) * 2 + 1] * shrink;
      sum += warp_sums[(w * GROUP + g) * HEAD_DIM + d] * shrink;
    }
    if (length <= split_tokens) {
      const long long token = tokens[row];
      out[(token * heads + head) * HEAD_DIM + d] = Element<T>::round(length > 0 ? sum / all : 0.f);
    } else {
      const long long part = (static_cast<long long>(row) * heads + head) * gridDim.x + split;
      partial_values[part * HEAD_DIM + d] = sum;
      if (d == 0) partial_statistics[part * 2] = highest, partial_statistics[part * 2 + 1] = all;
    }
  }
}

// The splits of the rows that have several, put together in their order. Arguments as above.
// Grid (heads, rows), HEAD_DIM threads.
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(HEAD_DIM) merge_splits(
    T* __restrict__ out, const float* __restrict__ partial_values,
    const float* __restrict__ partial_statistics, const int* __restrict__ tokens,
    const int* __restrict__ lengths, int splits, int split_tokens) {
  const int head = blockIdx.x, row = blockIdx.y, d = threadIdx.x, length = lengths[row];
  if (length <= split_tokens) return;  // `decode` wrote it
  const int used = (length + split_tokens - 1) / split_tokens;
  const long long part = (static_cast<long long>(row) * gridDim.x + head) * splits;
  float highest = MINUS_INFINITY, all = 0.f, sum = 0.f;
  for (int split = 0; split < used; split++)
    highest = fmaxf(highest, partial_statistics[(part + split) * 2]);
  for (int split = 0; split < used; split++) {
    const float shrink = exp2f(partial_statistics[(part + split) * 2] - highest);
    all += partial_statistics[(part + split) * 2 + 1] * shrink;
    sum += partial_values[(part + split) * HEAD_DIM + d] * shrink;
  }
  const long long token = tokens[row];
  out[(token * gridDim.x + head) * HEAD_DIM + d] = Element<T>::round(sum / all);
}
