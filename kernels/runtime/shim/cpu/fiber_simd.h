// Barriers and simd operations between fibers. The default argument is the caller's line: lanes must meet on it.
#pragma once
#define SPOOL_THREADGROUP_ARRAY(T, name, ...) \
  T(&name)[__VA_ARGS__] = *(T(*)[__VA_ARGS__])spool::allocate(sizeof(T[__VA_ARGS__]))
#define SPOOL_LINE int line = __builtin_LINE()

namespace metal {
inline void threadgroup_barrier(mem_flags, SPOOL_LINE) { spool::meet_threadgroup(line); }
inline void simdgroup_barrier(mem_flags, SPOOL_LINE) { spool::meet_at_barrier(line); }

template <class T>
T spool_value(const unsigned char (*values)[16], int lane) {
  T value;
  memcpy(&value, values[lane & 31], sizeof value);
  return value;
}
inline int spool_lane() { return spool::group()->current & 31; }

// In the order of an xor butterfly, as `slot_sum` in simd.h; needs all 32 lanes.
template <class T, class F>
T spool_reduce(T x, int operation, int line, F combine) {
  auto values = spool::exchange(x, operation, line);
  T v[32];
  for (int i = 0; i < 32; i++) v[i] = spool_value<T>(values, i);
  for (int o = 16; o; o >>= 1)
    for (int i = 0; i < o; i++) v[i] = combine(v[i], v[i + o]);
  return v[0];
}
template <class T>
T simd_sum(T x, SPOOL_LINE) {
  return spool_reduce(x, 1, line, [](T a, T b) { return T(a + b); });
}
template <class T>
T simd_max(T x, SPOOL_LINE) {
  return spool_reduce(x, 2, line, [](T a, T b) { return a < b ? b : a; });
}
template <class T>
T simd_min(T x, SPOOL_LINE) {
  return spool_reduce(x, 3, line, [](T a, T b) { return b < a ? b : a; });
}
template <class T>
T simd_or(T x, SPOOL_LINE) {
  return spool_reduce(x, 4, line, [](T a, T b) { return T(a | b); });
}
template <class T>
T simd_and(T x, SPOOL_LINE) {
  return spool_reduce(x, 5, line, [](T a, T b) { return T(a & b); });
}
inline bool simd_any(bool x, SPOOL_LINE) {
  return spool_reduce(int(x), 6, line, [](int a, int b) { return a | b; });
}
inline bool simd_all(bool x, SPOOL_LINE) {
  return spool_reduce(int(x), 7, line, [](int a, int b) { return a & b; });
}

#define SPOOL_SHUFFLE(name, operation, from)                \
  template <class T>                                        \
  T name(T x, ushort by, SPOOL_LINE) {                      \
    auto values = spool::exchange(x, operation, line);      \
    const int lane = spool_lane();                          \
    (void)lane;                                             \
    return spool_value<T>(values, from);                    \
  }
SPOOL_SHUFFLE(simd_shuffle, 8, by)
SPOOL_SHUFFLE(simd_shuffle_xor, 9, lane ^ by)
SPOOL_SHUFFLE(simd_shuffle_up, 10, lane < by ? lane : lane - by)
SPOOL_SHUFFLE(simd_shuffle_down, 11, lane + by > 31 ? lane : lane + by)
SPOOL_SHUFFLE(simd_broadcast, 12, by)
template <class T>
T simd_broadcast_first(T x, SPOOL_LINE) {
  return spool_value<T>(spool::exchange(x, 13, line), 0);
}

template <class T>
T spool_prefix(T x, int operation, int line, int beyond) {
  auto values = spool::exchange(x, operation, line);
  T sum = T(0);
  for (int i = 0; i < spool_lane() + beyond; i++) sum = sum + spool_value<T>(values, i);
  return sum;
}
template <class T>
T simd_prefix_inclusive_sum(T x, SPOOL_LINE) {
  return spool_prefix(x, 14, line, 1);
}
template <class T>
T simd_prefix_exclusive_sum(T x, SPOOL_LINE) {
  return spool_prefix(x, 15, line, 0);
}
}  // namespace metal
