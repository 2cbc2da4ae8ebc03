// What C++ has no words for. The emulation that the tests run has its own words for the same.
#ifndef CUDA_EMULATION
#define DYNAMIC_SHARED(type, name)                                       \
  extern __shared__ __align__(128) unsigned char dynamic_shared_bytes[]; \
  type* name = reinterpret_cast<type*>(dynamic_shared_bytes)
#endif
