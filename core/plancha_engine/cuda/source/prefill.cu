// Chunked prefill on CUDA cores: causal attention of a ragged batch's new tokens over KV blocks.
//
// A thread block keeps PREFILL_QUERIES queries and goes over the context once, in tiles of
// PREFILL_TILE tokens that it shares, with online softmax (FlashAttention-2: Dao 2023, over blocks
// found through a table: PagedAttention, Kwon et al. 2023). The queries of a row for one KV head
// are taken token by token, and within a token head by head: query p is head p % group of token
// p / group. Tiles begin at multiples of PREFILL_TILE whatever the chunk, so a token's result is
// the same bits in any chunk and any batch.
//
//   out, queries   T [tokens, heads, HEAD_DIM], `query_stride` elements from one token's queries to
//                  the next one's
//   keys, values   T [blocks, kv_heads, BLOCK, HEAD_DIM]: a layer's pool, the new tokens' included
//   block_table    int [slots, table_width]; only entries of tokens that are attended to are read
//   items          int [items, 2]: row, and the first of its queries that the thread block has
//   first          int [rows + 1]: row r's new tokens are first[r] to first[r + 1] - 1
//   positions      int [tokens]: in their sequences; consecutive within a row
//   slots          int [rows]: a row's line of the block table
//   scale          of a score, times log2(e): exponentials are powers of two here
//
// Grid (items, kv_heads), PREFILL_WARPS warps.

constexpr int PREFILL_WARPS = 4;
constexpr int WARP_QUERIES = 4;
constexpr int PREFILL_QUERIES = PREFILL_WARPS * WARP_QUERIES;
constexpr int PREFILL_TILE = 32;  // a lane each

template <typename T, int HEAD_DIM> struct PrefillTile {
  // One word more than a head: the lanes of a warp, each at its token, then use different banks.
  static constexpr int KEY_WORDS = HEAD_DIM / 2 + 1;

  T values[PREFILL_TILE][HEAD_DIM];
  float queries[PREFILL_QUERIES][HEAD_DIM];
  float weights[PREFILL_QUERIES][PREFILL_TILE];
  unsigned keys[PREFILL_TILE][KEY_WORDS];
};

template <typename T, int HEAD_DIM, int BLOCK>
__global__ void __launch_bounds__(PREFILL_WARPS * 32, 4) prefill(
    T* __restrict__ out, const T* __restrict__ queries, const T* __restrict__ keys,
    const T* __restrict__ values, const int* __restrict__ block_table,
    const int* __restrict__ items, const int* __restrict__ first,
    const int* __restrict__ positions, const int* __restrict__ slots, long long query_stride,
    int table_width, int group, float scale) {
  constexpr int THREADS = PREFILL_WARPS * 32, HEAD_VECTORS = HEAD_DIM / 8;  // of 16 bytes
  constexpr int LANE_ELEMENTS = HEAD_DIM / 32;
  using Tile = PrefillTile<T, HEAD_DIM>;
  DYNAMIC_SHARED(Tile, shared);
  const int row = items[2 * blockIdx.x], first_query = items[2 * blockIdx.x + 1];
  const int kv_head = blockIdx.y, kv_heads = gridDim.y, heads = kv_heads * group;
  const int first_token = first[row], row_queries = (first[row + 1] - first_token) * group;
  const int count = min(PREFILL_QUERIES, row_queries - first_query);
  const int end = positions[first_token + (first_query + count - 1) / group] + 1;
  const int lane = threadIdx.x % 32, warp_query = threadIdx.x / 32 * WARP_QUERIES;

  for (int i = threadIdx.x; i < PREFILL_QUERIES * HEAD_DIM; i += THREADS) {
    const int q = i / HEAD_DIM, d = i % HEAD_DIM, packed = first_query + q;
    const long long token = first_token + packed / group;
    const int head = kv_head * group + packed % group;
    shared->queries[q][d] =
        q < count ? Element<T>::widen(queries[token * query_stride + head * HEAD_DIM + d]) * scale
                  : 0.f;
  }
  int position[WARP_QUERIES];  // of the warp's queries; -1 for those that do not exist
  float maximum[WARP_QUERIES], total[WARP_QUERIES], sums[WARP_QUERIES][LANE_ELEMENTS];
#pragma unroll
  for (int q = 0; q < WARP_QUERIES; q++) {
    const bool exists = warp_query + q < count;
    position[q] =
        exists ? positions[first_token + (first_query + warp_query + q) / group] : -1;
    maximum[q] = MINUS_INFINITY, total[q] = 0.f;
#pragma unroll
    for (int e = 0; e < LANE_ELEMENTS; e++) sums[q][e] = 0.f;
  }

  const int* blocks = block_table + static_cast<long long>(slots[row]) * table_width;
  for (int base = 0; base < end; base += PREFILL_TILE) {
    __syncthreads();  // nobody reads the tile before
    for (int i = threadIdx.x; i < PREFILL_TILE * HEAD_VECTORS; i += THREADS) {
      const int token = i / HEAD_VECTORS, vector = i % HEAD_VECTORS;
      uint4 key = make_uint4(0, 0, 0, 0), value = key;
      if (base + token < end) {  // what lies beyond may be anything, NaN too
        const long long at =
            pool_offset<HEAD_DIM, BLOCK>(blocks, base + token, kv_head, kv_heads);
        key = __ldg(reinterpret_cast<const uint4*>(keys + at) + vector);
        value = __ldg(reinterpret_cast<const uint4*>(values + at) + vector);
      }
      unsigned* to = shared->keys[token] + vector * 4;
      to[0] = key.x, to[1] = key.y, to[2] = key.z, to[3] = key.w;
      reinterpret_cast<uint4*>(shared->values[token])[vector] = value;
    }
    __syncthreads();

    float score[WARP_QUERIES] = {};  // of the lane's token
#pragma unroll 8
    for (int word = 0; word < HEAD_DIM / 2; word++) {
      const float2 key = Element<T>::unpack(shared->keys[lane][word]);
#pragma unroll
      for (int q = 0; q < WARP_QUERIES; q++) {
        const float* query = shared->queries[warp_query + q] + 2 * word;
        score[q] += query[0] * key.x + query[1] * key.y;
      }
    }
#pragma unroll
    for (int q = 0; q < WARP_QUERIES; q++) {
      if (base + lane > position[q]) score[q] = MINUS_INFINITY;
      float highest = fmaxf(maximum[q], score[q]);
#pragma unroll
      for (int apart = 16; apart; apart /= 2)
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, apart));
      const bool any = highest > MINUS_INFINITY;
      const float shrink = any ? exp2f(maximum[q] - highest) : 1.f;
      const float weight = any ? exp2f(score[q] - highest) : 0.f;
      maximum[q] = highest, total[q] = total[q] * shrink + weight;
      shared->weights[warp_query + q][lane] = weight;
#pragma unroll
      for (int e = 0; e < LANE_ELEMENTS; e++) sums[q][e] *= shrink;
    }
    __syncwarp();  // the weights are this warp's own
#pragma unroll 4
    for (int token = 0; token < PREFILL_TILE; token++) {
#pragma unroll
      for (int e = 0; e < LANE_ELEMENTS; e++) {
        const float value = Element<T>::widen(shared->values[token][lane + 32 * e]);
#pragma unroll
        for (int q = 0; q < WARP_QUERIES; q++)
          sums[q][e] += shared->weights[warp_query + q][token] * value;
      }
    }
  }

#pragma unroll
  for (int q = 0; q < WARP_QUERIES; q++) {
    float all = total[q];
#pragma unroll
    for (int apart = 16; apart; apart /= 2) all += __shfl_xor_sync(0xffffffffu, all, apart);
    if (position[q] < 0) continue;
    const int packed = first_query + warp_query + q;
    const long long token = first_token + packed / group;
    T* to = out + (token * heads + kv_head * group + packed % group) * HEAD_DIM;
#pragma unroll
    for (int e = 0; e < LANE_ELEMENTS; e++) to[lane + 32 * e] = Element<T>::round(sums[q][e] / all);
  }
}
