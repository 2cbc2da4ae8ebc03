// Paged decode on CUDA cores: attention of one token a sequence over its KV blocks.
//
// Online softmax (FlashAttention-2: Dao 2023) over blocks found through a table (PagedAttention:
// Kwon et al. 2023). K and V are read once for all query heads of a KV head, up to GROUP of them.
// Arguments, layouts and grid: splits.cuh.

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
    const int* __restrict__ items, const int* __restrict__ block_table,
    const int* __restrict__ tokens, const int* __restrict__ slots,
    const int* __restrict__ lengths, long long query_stride, int table_width, int group,
    int split_tokens, float scale) {
  using Lane = Lanes<HEAD_DIM>;
  constexpr int WORDS = Lane::WORDS, WARP_TOKENS = 32 / Lane::COUNT;
  constexpr int STEP = DECODE_WARPS * WARP_TOKENS;  // tokens under way in the thread block,
  constexpr int UNROLL = GROUP > 4 ? 2 : 4;         // and in each lane
  const SplitWork<GROUP> work(items, lengths, group, split_tokens);
  if (work.row < 0) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % Lane::COUNT;
  const int warp_token = threadIdx.x % 32 / Lane::COUNT;

  const T* first_query = queries + tokens[work.row] * query_stride + work.first_head * HEAD_DIM;
  float query[GROUP][2 * WORDS], sums[GROUP][2 * WORDS], maximum[GROUP], total[GROUP];
#pragma unroll
  for (int g = 0; g < GROUP; g++) {
    unsigned words[WORDS] = {};
    if (g < work.queries) Lane::load(words, first_query + g * HEAD_DIM, lane);
#pragma unroll
    for (int j = 0; j < WORDS; j++) {
      const float2 pair = Element<T>::unpack(words[j]);
      query[g][2 * j] = pair.x * scale, query[g][2 * j + 1] = pair.y * scale;
      sums[g][2 * j] = sums[g][2 * j + 1] = 0.f;
    }
    maximum[g] = MINUS_INFINITY, total[g] = 0.f;
  }

  const int* blocks = block_table + static_cast<long long>(slots[work.row]) * table_width;
  for (int base = work.begin; base < work.end; base += STEP * UNROLL) {
    const int first = base + warp * WARP_TOKENS + warp_token;
    unsigned key[UNROLL][WORDS] = {}, value[UNROLL][WORDS] = {};
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
      const int position = first + u * STEP;
      if (position < work.end) {  // what lies beyond may be anything, NaN too
        const long long at =
            pool_offset<HEAD_DIM, BLOCK>(blocks, position, work.kv_head, work.kv_heads);
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
        if (first + u * STEP >= work.end) score[u] = MINUS_INFINITY;
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
    const float shrink = shrink_to(highest, maximum[g]);
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
  __syncthreads();  // the warps' sums are there
  finish_split<T, HEAD_DIM, GROUP>(
      work, warp_sums, warp_statistics, out, partial_values, partial_statistics, tokens,
      split_tokens);
}
