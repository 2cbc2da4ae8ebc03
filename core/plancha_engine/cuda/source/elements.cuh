// The 16-bit floats of the KV pool: two elements to a 32-bit word, the first in the low half.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define MINUS_INFINITY __int_as_float(0xff800000)  // NVRTC knows no INFINITY

template <typename T> struct Element;

template <> struct Element<__nv_bfloat16> {
  static __device__ __forceinline__ float2 unpack(unsigned word) {
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
  }
  static __device__ __forceinline__ unsigned pack(float first, float second) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<const unsigned*>(&pair);
  }
  static __device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
  static __device__ __forceinline__ __nv_bfloat16 round(float x) { return __float2bfloat16(x); }
};

template <> struct Element<__half> {
  static __device__ __forceinline__ float2 unpack(unsigned word) {
    return make_float2(
        __half2float(__ushort_as_half(static_cast<unsigned short>(word & 0xffffu))),
        __half2float(__ushort_as_half(static_cast<unsigned short>(word >> 16))));
  }
  static __device__ __forceinline__ unsigned pack(float first, float second) {
    const __half2 pair = __floats2half2_rn(first, second);
    return *reinterpret_cast<const unsigned*>(&pair);
  }
  static __device__ __forceinline__ float widen(__half x) { return __half2float(x); }
  static __device__ __forceinline__ __half round(float x) { return __float2half(x); }
};

// Where a token's K and V for one head begin in a layer's pool, [block][kv_head][slot][HEAD_DIM],
// in elements. 64 bits: a pool of 2 GiB has more elements than an int counts.
template <int HEAD_DIM, int BLOCK>
__device__ __forceinline__ long long pool_offset(
    const int* __restrict__ blocks, int position, int kv_head, int kv_heads) {
  const long long block = blocks[position / BLOCK];
  return ((block * kv_heads + kv_head) * BLOCK + position % BLOCK) * HEAD_DIM;
}
