// Paged decode on tensor cores: a KV head's queries, up to GROUP of them, are a warp's rows.
//
// Each warp goes over tiles of 16 tokens of its own: K and V come by asynchronous copies into one
// of STAGES places while the tile before is computed (tensor_rows.cuh). Blocks are found through a
// table (PagedAttention: Kwon et al. 2023). Arguments, layouts and grid: splits.cuh.

constexpr int STAGES = 2;

template <typename T, int HEAD_DIM, int GROUP, int BLOCK>
__global__ void __launch_bounds__(DECODE_WARPS * 32, 3) decode_tensor(
    T* __restrict__ out, float* __restrict__ partial_values,
    float* __restrict__ partial_statistics, const T* __restrict__ queries,
    const T* __restrict__ keys, const T* __restrict__ values,
    const int* __restrict__ items, const int* __restrict__ block_table,
    const int* __restrict__ tokens, const int* __restrict__ slots,
    const int* __restrict__ lengths, long long query_stride, int table_width, int group,
    int split_tokens, float scale) {
  constexpr int HALVES = GROUP / 8;
  constexpr int HEAD_VECTORS = HEAD_DIM / 8, STEP = DECODE_WARPS * TILE_TOKENS;
  using Tile = TokenTile<T, HEAD_DIM>;
  using Rows = TensorRows<T, HEAD_DIM, HALVES>;
  DYNAMIC_SHARED(Tile, tiles);  // [DECODE_WARPS][STAGES]
  const SplitWork<GROUP> work(items, lengths, group, split_tokens);
  if (work.row < 0) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int* blocks = block_table + static_cast<long long>(slots[work.row]) * table_width;
  Tile* own_tiles = tiles + warp * STAGES;

  const T* first_query = queries + tokens[work.row] * query_stride + work.first_head * HEAD_DIM;
  const T* heads[HALVES];
  int ends[HALVES];
#pragma unroll
  for (int half = 0; half < HALVES; half++) {
    const int g = half * 8 + Rows::row();
    heads[half] = g < work.queries ? first_query + g * HEAD_DIM : nullptr;
    ends[half] = work.end;
  }
  Rows rows(heads);

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

  const int warp_begin = work.begin + warp * TILE_TOKENS;
  if (warp_begin < work.end) fetch(0, warp_begin);
  commit_copies();
  int stage = 0;
  for (int base = warp_begin; base < work.end; base += STEP) {
    if (base + STEP < work.end) fetch((stage + 1) % STAGES, base + STEP);
    commit_copies();
    wait_for_copies<STAGES - 1>();
    __syncwarp();  // every lane's copies are there for the others
    rows.attend(own_tiles[stage], base, ends, scale);
    __syncwarp();  // nobody reads the tile any more
    stage = (stage + 1) % STAGES;
  }

  __syncthreads();  // the tiles' memory is used anew
  float* warp_sums = reinterpret_cast<float*>(tiles);                    // [WARPS][GROUP][HEAD_DIM]
  float* warp_statistics = warp_sums + DECODE_WARPS * GROUP * HEAD_DIM;  // [WARPS][GROUP][2]
#pragma unroll
  for (int half = 0; half < HALVES; half++) {
    const int g = warp * GROUP + half * 8 + Rows::row(), column = Rows::column();
    const float total = rows.whole_total(half);
    if (column == 0) {
      warp_statistics[g * 2] = rows.maximum[half];
      warp_statistics[g * 2 + 1] = total;
    }
#pragma unroll
    for (int n = 0; n < HEAD_DIM / 8; n++) {
      warp_sums[g * HEAD_DIM + n * 8 + column] = rows.sums[n][half * 2];
      warp_sums[g * HEAD_DIM + n * 8 + column + 1] = rows.sums[n][half * 2 + 1];
    }
  }
  __syncthreads();
  finish_split<T, HEAD_DIM, GROUP>(
      work, warp_sums, warp_statistics, out, partial_values, partial_statistics, tokens,
      split_tokens);
}
