// A simdgroup of one lane: it meets nobody, so barriers and simd operations are the identity.
#pragma once
#define SPOOL_THREADGROUP_ARRAY(T, name, ...) alignas(64) T name[__VA_ARGS__]

namespace metal {
SPOOL_INLINE void threadgroup_barrier(mem_flags) { asm volatile("" ::: "memory"); }
SPOOL_INLINE void simdgroup_barrier(mem_flags) {}

#define SPOOL_IDENTITY(name) \
  template <class T>         \
  SPOOL_INLINE T name(T x) { \
    return x;                \
  }
SPOOL_IDENTITY(simd_sum)
SPOOL_IDENTITY(simd_max)
SPOOL_IDENTITY(simd_min)
SPOOL_IDENTITY(simd_or)
SPOOL_IDENTITY(simd_and)
SPOOL_IDENTITY(simd_prefix_inclusive_sum)
SPOOL_IDENTITY(simd_broadcast_first)
SPOOL_IDENTITY(simd_any)
SPOOL_IDENTITY(simd_all)

#define SPOOL_IDENTITY2(name)      \
  template <class T>               \
  SPOOL_INLINE T name(T x, ushort) { \
    return x;                      \
  }
SPOOL_IDENTITY2(simd_shuffle)
SPOOL_IDENTITY2(simd_shuffle_xor)
SPOOL_IDENTITY2(simd_shuffle_up)
SPOOL_IDENTITY2(simd_shuffle_down)
SPOOL_IDENTITY2(simd_broadcast)

template <class T>
SPOOL_INLINE T simd_prefix_exclusive_sum(T) {
  return T(0);
}
}  // namespace metal
