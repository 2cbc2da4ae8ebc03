// The words and built-in types that CUDA adds to C++.
#pragma once
#include <cstdint>

#define CUDA_EMULATION 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

// Sanitizers are switched off for the emulation's own code, which runs on every fiber's behalf.
#if defined(__SANITIZE_THREAD__)
#define EMULATION_CODE __attribute__((no_sanitize("thread")))
#else
#define EMULATION_CODE
#endif

// Static shared memory is one place for all threads, in a section that is filled with NaN before
// every block. Sanitizers want variables of their own, with red zones.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define __shared__ static
#else
#define __shared__ static __attribute__((section("emulated_shared")))
#endif

struct uint3 {
  unsigned x, y, z;
};
static uint3 threadIdx, blockIdx, blockDim, gridDim;

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
