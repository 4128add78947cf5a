// Metal's names in CUDA's terms; goes first in the header of `mx.fast.cuda_kernel`, which includes MLX's own
// utilities and cooperative groups before it. Functions without __device__: MLX's NVRTC options make that the default.
#define SIMD_W 32
#define device
#define constant
#define thread
#define threadgroup  // pointers only: arrays are rewritten to __shared__
using uint = unsigned int;
using ushort = unsigned short;
using uchar = unsigned char;
using half = __half;
using float16_t = __half;
using bfloat = __nv_bfloat16;
using bfloat16_t = __nv_bfloat16;
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif

#define thread_position_in_threadgroup threadIdx
#define threadgroup_position_in_grid blockIdx
#define threads_per_threadgroup blockDim
#define threadgroups_per_grid gridDim
#define thread_index_in_threadgroup (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z))
#define thread_index_in_simdgroup (thread_index_in_threadgroup & 31u)
#define simdgroup_index_in_threadgroup (thread_index_in_threadgroup >> 5)
#define simdgroups_per_threadgroup ((blockDim.x * blockDim.y * blockDim.z + 31u) >> 5)
#define threads_per_simdgroup 32u

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };

namespace metal {
using ::mem_flags;
inline void threadgroup_barrier(mem_flags) { __syncthreads(); }
inline void simdgroup_barrier(mem_flags) { __syncwarp(); }

#define SPOOL_ALL_LANES 0xffffffffu
#define SPOOL_SHUFFLE(name, intrinsic)                   \
  template <class T>                                     \
  inline T name(T x, ushort by) {                        \
    return intrinsic(SPOOL_ALL_LANES, x, by);            \
  }
SPOOL_SHUFFLE(simd_shuffle_xor, __shfl_xor_sync)
SPOOL_SHUFFLE(simd_shuffle, __shfl_sync)
SPOOL_SHUFFLE(simd_shuffle_up, __shfl_up_sync)
SPOOL_SHUFFLE(simd_shuffle_down, __shfl_down_sync)
SPOOL_SHUFFLE(simd_broadcast, __shfl_sync)

#define SPOOL_REDUCE(name, combined)                     \
  template <class T>                                     \
  inline T name(T a) {                                   \
    for (int o = 16; o > 0; o >>= 1) {                   \
      T b = __shfl_xor_sync(SPOOL_ALL_LANES, a, o);      \
      a = (combined);                                    \
    }                                                    \
    return a;                                            \
  }
SPOOL_REDUCE(simd_sum, a + b)
SPOOL_REDUCE(simd_max, a < b ? b : a)
SPOOL_REDUCE(simd_min, b < a ? b : a)
SPOOL_REDUCE(simd_or, a | b)
SPOOL_REDUCE(simd_and, a & b)
inline int simd_max(int a) { return __reduce_max_sync(SPOOL_ALL_LANES, a); }
inline int simd_min(int a) { return __reduce_min_sync(SPOOL_ALL_LANES, a); }
inline bool simd_any(bool x) { return __any_sync(SPOOL_ALL_LANES, x); }
inline bool simd_all(bool x) { return __all_sync(SPOOL_ALL_LANES, x); }

enum memory_order { memory_order_relaxed };
struct atomic_int {
  int value;
};
inline int atomic_load_explicit(const atomic_int* at, memory_order) {
  return *reinterpret_cast<const volatile int*>(&at->value);
}
inline void atomic_store_explicit(atomic_int* at, int v, memory_order) {
  *reinterpret_cast<volatile int*>(&at->value) = v;
}
inline int atomic_exchange_explicit(atomic_int* at, int v, memory_order) { return atomicExch(&at->value, v); }
inline bool atomic_compare_exchange_weak_explicit(atomic_int* at, int* expected, int v, memory_order, memory_order) {
  const int old = atomicCAS(&at->value, *expected, v);
  const bool same = old == *expected;
  *expected = old;
  return same;
}
inline int atomic_fetch_min_explicit(atomic_int* at, int v, memory_order) { return atomicMin(&at->value, v); }
inline int atomic_fetch_max_explicit(atomic_int* at, int v, memory_order) { return atomicMax(&at->value, v); }
inline int atomic_fetch_add_explicit(atomic_int* at, int v, memory_order) { return atomicAdd(&at->value, v); }

inline float exp(float x) { return ::expf(x); }
inline float log(float x) { return ::logf(x); }
inline float sqrt(float x) { return ::sqrtf(x); }
inline float rsqrt(float x) { return ::rsqrtf(x); }
inline float tanh(float x) { return ::tanhf(x); }
inline float floor(float x) { return ::floorf(x); }
inline float fabs(float x) { return ::fabsf(x); }
inline float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
template <class To, class From>
inline To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type");
  return *reinterpret_cast<To*>(&from);
}
}  // namespace metal
using metal::as_type;
using metal::atomic_compare_exchange_weak_explicit;
using metal::atomic_exchange_explicit;
using metal::atomic_fetch_add_explicit;
using metal::atomic_fetch_max_explicit;
using metal::atomic_fetch_min_explicit;
using metal::atomic_int;
using metal::atomic_load_explicit;
using metal::atomic_store_explicit;
using metal::memory_order_relaxed;
using metal::simd_all;
using metal::simd_and;
using metal::simd_any;
using metal::simd_broadcast;
using metal::simd_max;
using metal::simd_min;
using metal::simd_or;
using metal::simd_shuffle;
using metal::simd_shuffle_down;
using metal::simd_shuffle_up;
using metal::simd_shuffle_xor;
using metal::simd_sum;
using metal::simdgroup_barrier;
using metal::threadgroup_barrier;
