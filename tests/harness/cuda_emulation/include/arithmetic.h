// CUDA's functions of numbers, as far as the kernels use them.
#pragma once
#include <cmath>
#include <cstring>

template <typename To, typename From> static inline To emulated_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
static inline float __uint_as_float(unsigned bits) { return emulated_bits<float>(bits); }
static inline unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }
static inline float __int_as_float(int bits) { return emulated_bits<float>(bits); }
static inline int __float_as_int(float x) { return emulated_bits<int>(x); }

template <typename T> static inline T min(T a, T b) { return b < a ? b : a; }
template <typename T> static inline T max(T a, T b) { return a < b ? b : a; }
template <typename T> static inline T __ldg(const T* address) { return *address; }
