// What C++ has no words for: instructions of compute capability 8.0 and later (PTX ISA 8).
// The emulation that the tests run has functions of its own by the same names.
#ifndef CUDA_EMULATION

#define DYNAMIC_SHARED(type, name)                                       \
  extern __shared__ __align__(128) unsigned char dynamic_shared_bytes[]; \
  type* name = reinterpret_cast<type*>(dynamic_shared_bytes)

// Starts copying 16 bytes to shared memory, or zeros if `read` is false; `from` is valid anyhow.
__device__ __forceinline__ void copy_async_16(void* to, const void* from, bool read) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from),
                 "r"(read ? 16 : 0)
               : "memory");
}

// Makes a group of the copies that this thread started since the last group.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Until at most MOST of this thread's newest groups are under way.
template <int MOST> __device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(MOST) : "memory");
}

// Four 8x8 matrices of 16-bit elements, transposed: lane l gives the address of row l % 8 of
// matrix l / 8, and gets of each the elements (2 (l % 4), l / 4) and (2 (l % 4) + 1, l / 4).
__device__ __forceinline__ void load_matrices_transposed(unsigned (&words)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
}

#define TENSOR_CORE_MULTIPLY(T, NAME)                                                         \
  __device__ __forceinline__ void tensor_core_multiply(                                       \
      T, float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {                     \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME ".f32 "               \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                             \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));         \
  }
TENSOR_CORE_MULTIPLY(__nv_bfloat16, "bf16")
TENSOR_CORE_MULTIPLY(__half, "f16")

// d [16][8] += a [16][16] b [16][8], in the fragments of mma.m16n8k16.
#define multiply_16_8_16(T, d, a, b) tensor_core_multiply(T(), d, a, b)

#endif
