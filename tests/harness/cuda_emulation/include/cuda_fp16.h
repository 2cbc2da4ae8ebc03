// IEEE half precision as NVIDIA's header of this name has it.
#pragma once
#include "arithmetic.h"

struct __half {
  uint16_t bits;
};
static inline float __half2float(__half x) { return emulated_bits<_Float16>(x.bits); }
static inline __half __float2half(float x) {
  return {emulated_bits<uint16_t>(static_cast<_Float16>(x))};
}
static inline __half __ushort_as_half(unsigned short bits) { return {bits}; }

struct alignas(4) __half2 {
  __half x, y;
};
static inline __half2 __floats2half2_rn(float x, float y) {
  return {__float2half(x), __float2half(y)};
}
