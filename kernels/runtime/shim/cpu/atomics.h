// Metal's atomics on 32-bit integers, relaxed: what orders them is a barrier. The one lane of the fast build shares its
// threadgroup with nobody, so there they are plain reads and writes.
#pragma once

namespace metal {
enum memory_order { memory_order_relaxed };
struct atomic_int {
  int value;
};

#if SIMD_W == 1
SPOOL_INLINE int atomic_load_explicit(const atomic_int* at, memory_order) { return at->value; }
SPOOL_INLINE void atomic_store_explicit(atomic_int* at, int v, memory_order) { at->value = v; }
SPOOL_INLINE int atomic_exchange_explicit(atomic_int* at, int v, memory_order) {
  const int old = at->value;
  at->value = v;
  return old;
}
SPOOL_INLINE bool atomic_compare_exchange_weak_explicit(atomic_int* at, int* expected, int v, memory_order, memory_order) {
  if (at->value != *expected) {
    *expected = at->value;
    return false;
  }
  at->value = v;
  return true;
}
#else
inline int atomic_load_explicit(const atomic_int* at, memory_order) {
  return __atomic_load_n(&at->value, __ATOMIC_RELAXED);
}
inline void atomic_store_explicit(atomic_int* at, int v, memory_order) {
  __atomic_store_n(&at->value, v, __ATOMIC_RELAXED);
}
inline int atomic_exchange_explicit(atomic_int* at, int v, memory_order) {
  return __atomic_exchange_n(&at->value, v, __ATOMIC_RELAXED);
}
inline bool atomic_compare_exchange_weak_explicit(atomic_int* at, int* expected, int v, memory_order, memory_order) {
  return __atomic_compare_exchange_n(&at->value, expected, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
#endif

// What was there before; `kept` says of `old` and `v` what is there after.
#define SPOOL_ATOMIC(name, kept)                                                                  \
  SPOOL_INLINE int name(atomic_int* at, int v, memory_order order) {                              \
    int old = atomic_load_explicit(at, order);                                                    \
    while (!atomic_compare_exchange_weak_explicit(at, &old, kept, order, order)) {                \
    }                                                                                             \
    return old;                                                                                   \
  }
SPOOL_ATOMIC(atomic_fetch_min_explicit, (v < old ? v : old))
SPOOL_ATOMIC(atomic_fetch_max_explicit, (old < v ? v : old))
SPOOL_ATOMIC(atomic_fetch_add_explicit, old + v)
}  // namespace metal
