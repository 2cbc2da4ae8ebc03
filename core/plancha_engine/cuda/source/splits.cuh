// What every decode kernel does with a split of the context: the same arguments, layouts and end.
//
// The context is cut into splits of `split_tokens`, each a thread block's work, and the splits'
// results are merged by their softmax statistics (FlashDecoding: Dao, Haziza, Massa, Sizov 2023).
// The length of a split does not depend on the batch, so neither does a row's result; and however
// much longer one row is than the others, no thread block has more to do than a split.
//
//   out, queries           T [tokens, heads, HEAD_DIM], `query_stride` elements from one token's
//                          queries to the next one's
//   keys, values           T [blocks, kv_heads, BLOCK, HEAD_DIM]: a layer's pool
//   block_table            int [slots, table_width]; only entries below a row's length are read
//   tokens, slots, lengths int [rows]: where a row's query and result are, its line of the block
//                          table, and how many tokens it attends to (0: the result is zeros)
//   items                  int [items, 2]: a row and one of its splits, which are in their order
//                          side by side; a negative row: nothing
//   partial_values         float [items, heads, HEAD_DIM], and
//   partial_statistics     float [items, heads, 2] (maximum of the scores, sum of their
//                          exponentials): written for rows of more than one split
//   scale                  of a score, times log2(e): exponentials are powers of two here
//
// Grid (items, kv_heads * tiles of GROUP queries), DECODE_WARPS warps.

constexpr int DECODE_WARPS = 4;

// What a thread block of a decode kernel is about.
template <int GROUP> struct SplitWork {
  int kv_head, kv_heads, heads, first_head, queries;  // of the tile: the first one's head, how many
  int row, length, begin, end;

  __device__ __forceinline__ SplitWork(
      const int* __restrict__ items, const int* __restrict__ lengths, int group,
      int split_tokens) {
    const int tiles = (group + GROUP - 1) / GROUP, first_query = blockIdx.y % tiles * GROUP;
    kv_head = blockIdx.y / tiles, kv_heads = gridDim.y / tiles, heads = kv_heads * group;
    first_head = kv_head * group + first_query, queries = min(GROUP, group - first_query);
    row = items[2 * blockIdx.x], length = row < 0 ? 0 : lengths[row];
    begin = items[2 * blockIdx.x + 1] * split_tokens, end = min(length, begin + split_tokens);
  }
};

// How much of a sum over scores below `highest` remains in one whose largest score that is.
__device__ __forceinline__ float shrink_to(float highest, float own) {
  return own == MINUS_INFINITY ? 0.f : exp2f(own - highest);
}

// Puts the warps' sums [DECODE_WARPS][GROUP][HEAD_DIM] and statistics [DECODE_WARPS][GROUP][2],
// both in shared memory and behind a barrier, together: into the result, or the split's part.
template <typename T, int HEAD_DIM, int GROUP>
__device__ __forceinline__ void finish_split(
    const SplitWork<GROUP>& work, const float* warp_sums, const float* warp_statistics,
    T* __restrict__ out, float* __restrict__ partial_values,
    float* __restrict__ partial_statistics, const int* __restrict__ tokens, int split_tokens) {
  for (int i = threadIdx.x; i < work.queries * HEAD_DIM; i += DECODE_WARPS * 32) {
    const int g = i / HEAD_DIM, d = i % HEAD_DIM, head = work.first_head + g;
    float highest = MINUS_INFINITY, all = 0.f, sum = 0.f;
#pragma unroll
    for (int w = 0; w < DECODE_WARPS; w++)
      highest = fmaxf(highest, warp_statistics[(w * GROUP + g) * 2]);
#pragma unroll
    for (int w = 0; w < DECODE_WARPS; w++) {
      const float shrink = shrink_to(highest, warp_statistics[(w * GROUP + g) * 2]);
      all += warp_statistics[(w * GROUP + g) * 2 + 1] * shrink;
      sum += warp_sums[(w * GROUP + g) * HEAD_DIM + d] * shrink;
    }
    if (work.length <= split_tokens) {
      const long long at = static_cast<long long>(tokens[work.row]) * work.heads + head;
      out[at * HEAD_DIM + d] = Element<T>::round(work.length > 0 ? sum / all : 0.f);
    } else {
      const long long at = static_cast<long long>(blockIdx.x) * work.heads + head;
      partial_values[at * HEAD_DIM + d] = sum;
      if (d == 0) partial_statistics[at * 2] = highest, partial_statistics[at * 2 + 1] = all;
    }
  }
}

// The splits of the rows that have several, put together in their order. Arguments as above, and
//
//   first_items  int [rows]: a row's first item
//
// Grid (heads, rows), HEAD_DIM threads.
template <typename T, int HEAD_DIM>
__global__ void __launch_bounds__(HEAD_DIM) merge_splits(
    T* __restrict__ out, const float* __restrict__ partial_values,
    const float* __restrict__ partial_statistics, const int* __restrict__ first_items,
    const int* __restrict__ tokens, const int* __restrict__ lengths, int split_tokens) {
  const int head = blockIdx.x, heads = gridDim.x, row = blockIdx.y, length = lengths[row];
  if (length <= split_tokens) return;  // its only split was the result
  const int splits = (length + split_tokens - 1) / split_tokens;
  const long long first = static_cast<long long>(first_items[row]) * heads + head;
  float highest = MINUS_INFINITY, all = 0.f, sum = 0.f;
  for (int split = 0; split < splits; split++)
    highest = fmaxf(highest, partial_statistics[(first + split * heads) * 2]);
  for (int split = 0; split < splits; split++) {
    const long long at = first + split * heads;
    const float shrink = exp2f(partial_statistics[at * 2] - highest);
    all += partial_statistics[at * 2 + 1] * shrink;
    sum += partial_values[at * HEAD_DIM + threadIdx.x] * shrink;
  }
  const long long at = static_cast<long long>(tokens[row]) * heads + head;
  out[at * HEAD_DIM + threadIdx.x] = Element<T>::round(sum / all);
}
