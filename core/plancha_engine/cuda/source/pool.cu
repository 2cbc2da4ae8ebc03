// Writing to the KV pool: the K and V of new tokens, and copies of whole blocks.

// Puts each token's K and V where its block table says.
//
//   keys, values          T [blocks, kv_heads, BLOCK, HEAD_DIM]: a layer's pool
//   new_keys, new_values  T [tokens, kv_heads, HEAD_DIM], `stride` elements from token to token
//   blocks, offsets       int [tokens]: the block and the slot in it; a negative block: nowhere
//
// Grid (tokens), any number of threads.
template <typename T, int HEAD_DIM, int BLOCK>
__global__ void write_kv(
    T* __restrict__ keys, T* __restrict__ values, const T* __restrict__ new_keys,
    const T* __restrict__ new_values, const int* __restrict__ blocks,
    const int* __restrict__ offsets, long long stride, int kv_heads) {
  constexpr int HEAD_VECTORS = HEAD_DIM / 8;  // of 16 bytes
  const long long token = blockIdx.x, block = blocks[token];
  if (block < 0) return;
  const uint4* from_keys = reinterpret_cast<const uint4*>(new_keys + token * stride);
  const uint4* from_values = reinterpret_cast<const uint4*>(new_values + token * stride);
  for (int i = threadIdx.x; i < kv_heads * HEAD_VECTORS; i += blockDim.x) {
    const long long head = block * kv_heads + i / HEAD_VECTORS;
    const long long to = (head * BLOCK + offsets[token]) * HEAD_VECTORS + i % HEAD_VECTORS;
    reinterpret_cast<uint4*>(keys)[to] = from_keys[i];
    reinterpret_cast<uint4*>(values)[to] = from_values[i];
  }
}

// Copies whole blocks of all layers: within a pool (copy-on-write), or between it and memory of
// the host (swapping). `to` and `from` may be one array; no block may be both read and written.
//
//   to, from                [layers, blocks, block_vectors] of 16 bytes, with `…_layer_vectors`
//                           from a layer to the next
//   to_blocks, from_blocks  int [copies]
//
// Grid (copies, layers), any number of threads.
extern "C" __global__ void copy_blocks(
    void* to, const void* from, const int* __restrict__ to_blocks,
    const int* __restrict__ from_blocks, long long to_layer_vectors,
    long long from_layer_vectors, long long block_vectors) {
  const long long layer = blockIdx.y, to_block = to_blocks[blockIdx.x];
  const long long from_block = from_blocks[blockIdx.x];
  uint4* target = static_cast<uint4*>(to) + layer * to_layer_vectors + to_block * block_vectors;
  const uint4* origin = static_cast<const uint4*>(from) + layer * from_layer_vectors +
                        from_block * block_vectors;
  for (long long i = threadIdx.x; i < block_vectors; i += blockDim.x) target[i] = origin[i];
}
