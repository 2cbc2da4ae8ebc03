// Chunked prefill on tensor cores: causal attention of a ragged batch's new tokens over KV blocks.
//
// Each warp has 16 queries of the thread block's PREFILL_TENSOR_QUERIES; all warps go over the same
// tiles of the context, which come by asynchronous copies while the tiles before are computed
// (tensor_rows.cuh). Queries, arguments and layouts are those of prefill.cu, and so is the promise
// of the same bits in any chunk and any batch.
//
// Grid (items, kv_heads), PREFILL_TENSOR_WARPS warps.

constexpr int PREFILL_TENSOR_WARPS = 4;
constexpr int PREFILL_TENSOR_QUERIES = PREFILL_TENSOR_WARPS * 16;
constexpr int PREFILL_STAGES = 2;
constexpr int STAGE_TILES = 2;

template <typename T, int HEAD_DIM, int BLOCK>
__global__ void __launch_bounds__(PREFILL_TENSOR_WARPS * 32, 3) prefill_tensor(
    T* __restrict__ out, const T* __restrict__ queries, const T* __restrict__ keys,
    const T* __restrict__ values, const int* __restrict__ block_table,
    const int* __restrict__ items, const int* __restrict__ first,
    const int* __restrict__ positions, const int* __restrict__ slots, long long query_stride,
    int table_width, int group, float scale) {
  constexpr int THREADS = PREFILL_TENSOR_WARPS * 32, HEAD_VECTORS = HEAD_DIM / 8;
  constexpr int STEP = STAGE_TILES * TILE_TOKENS;
  using Tile = TokenTile<T, HEAD_DIM>;
  using Rows = TensorRows<T, HEAD_DIM, 2>;
  DYNAMIC_SHARED(Tile, tiles);  // [PREFILL_STAGES][STAGE_TILES]
  const int row = items[2 * blockIdx.x], first_query = items[2 * blockIdx.x + 1];
  const int kv_head = blockIdx.y, kv_heads = gridDim.y, heads = kv_heads * group;
  const int first_token = first[row], row_queries = (first[row + 1] - first_token) * group;
  const int* blocks = block_table + static_cast<long long>(slots[row]) * table_width;
  // Past the last position that a query attends to, of queries before `query`.
  const auto end_before = [&](int query) {
    return positions[first_token + (min(query, row_queries) - 1) / group] + 1;
  };
  const int end = end_before(first_query + PREFILL_TENSOR_QUERIES);
  const int warp_query = first_query + threadIdx.x / 32 * 16;
  const int warp_end = warp_query < row_queries ? end_before(warp_query + 16) : 0;

  const T* query_heads[2];
  long long results[2];  // in `out`; negative for queries that do not exist
  int ends[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int query = warp_query + half * 8 + Rows::row();
    query_heads[half] = nullptr, results[half] = -1, ends[half] = 1;
    if (query < row_queries) {
      const long long token = first_token + query / group;
      const int head = kv_head * group + query % group;
      query_heads[half] = queries + token * query_stride + head * HEAD_DIM;
      results[half] = (token * heads + head) * HEAD_DIM;
      ends[half] = positions[token] + 1;
    }
  }
  Rows rows(query_heads);

  const auto fetch = [&](int stage, int base) {
    for (int i = threadIdx.x; i < STEP * HEAD_VECTORS; i += THREADS) {
      const int token = i / HEAD_VECTORS, d = i % HEAD_VECTORS * 8;
      const bool there = base + token < end;  // what lies beyond may be anything, NaN too
      const long long at =
          there ? pool_offset<HEAD_DIM, BLOCK>(blocks, base + token, kv_head, kv_heads) + d : 0;
      Tile& tile = tiles[stage * STAGE_TILES + token / TILE_TOKENS];
      copy_async_16(tile.keys[token % TILE_TOKENS] + d, keys + at, there);
      copy_async_16(tile.values[token % TILE_TOKENS] + d, values + at, there);
    }
  };

  fetch(0, 0);
  commit_copies();
  int stage = 0;
  for (int base = 0; base < end; base += STEP) {
    if (base + STEP < end) fetch((stage + 1) % PREFILL_STAGES, base + STEP);
    commit_copies();
    wait_for_copies<PREFILL_STAGES - 1>();
    __syncthreads();  // every thread's copies are there for the others
#pragma unroll
    for (int i = 0; i < STAGE_TILES; i++) {
      const int tile_base = base + i * TILE_TOKENS;
      if (tile_base < warp_end)
        rows.attend(tiles[stage * STAGE_TILES + i], tile_base, ends, scale);
    }
    __syncthreads();  // nobody reads the tiles any more
    stage = (stage + 1) % PREFILL_STAGES;
  }

#pragma unroll
  for (int half = 0; half < 2; half++) {
    const float total = rows.whole_total(half);
    if (results[half] < 0) continue;
#pragma unroll
    for (int n = 0; n < HEAD_DIM / 8; n++) {
      const unsigned pair = Element<T>::pack(
          rows.sums[n][half * 2] / total, rows.sums[n][half * 2 + 1] / total);
      *reinterpret_cast<unsigned*>(out + results[half] + n * 8 + Rows::column()) = pair;
    }
  }
}
