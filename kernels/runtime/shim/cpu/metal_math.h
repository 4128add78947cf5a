// The part of Metal's math library that our kernels use, on float.
#pragma once
#ifndef INFINITY
#define INFINITY __builtin_inff()
#endif

enum class mem_flags : unsigned { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };

namespace metal {
using ::mem_flags;

// exp without a branch, so that a compiler vectorises a loop over slots. Cephes' expf polynomial: within 2 ulp
// on normal results, exact at infinities, NaN stays NaN. libm's would be called once an element.
SPOOL_INLINE float exp_of(float x) {
  float bounded = x < -150.0f ? -150.0f : x;
  bounded = bounded > 100.0f ? 100.0f : bounded;
  float power = __builtin_rintf(bounded * 1.44269504088896341f);
  int n = (int)power;
  // ln 2 in two parts: the first has few bits, so power * part is exact.
  float rest = __builtin_fmaf(power, -0.693359375f, bounded);
  rest = __builtin_fmaf(power, 2.12194440e-4f, rest);
  float p = 1.9875691500e-4f;
  p = __builtin_fmaf(p, rest, 1.3981999507e-3f);
  p = __builtin_fmaf(p, rest, 8.3334519073e-3f);
  p = __builtin_fmaf(p, rest, 4.1665795894e-2f);
  p = __builtin_fmaf(p, rest, 1.6666665459e-1f);
  p = __builtin_fmaf(p, rest, 5.0000001201e-1f);
  p = __builtin_fmaf(p, rest * rest, rest) + 1.0f;
  // 2^n in two factors: n reaches below the smallest normal exponent.
  int half_n = n >> 1;
  uint32_t low = (uint32_t)(half_n + 127) << 23, high = (uint32_t)(n - half_n + 127) << 23;
  float scale_low, scale_high;
  memcpy(&scale_low, &low, 4);
  memcpy(&scale_high, &high, 4);
  float y = p * scale_low * scale_high;
  y = x < -104.0f ? 0.0f : y;
  y = x > 88.8f ? INFINITY : y;
  return x != x ? x : y;
}

#define SPOOL_MATH1(name, value) \
  SPOOL_INLINE float name(float x) { return value; }
#define SPOOL_MATH                             \
  SPOOL_MATH1(exp, ::metal::exp_of(x))         \
  SPOOL_MATH1(log, __builtin_logf(x))          \
  SPOOL_MATH1(exp2, __builtin_exp2f(x))        \
  SPOOL_MATH1(log2, __builtin_log2f(x))        \
  SPOOL_MATH1(sqrt, __builtin_sqrtf(x))        \
  SPOOL_MATH1(rsqrt, 1.0f / __builtin_sqrtf(x)) \
  SPOOL_MATH1(tanh, __builtin_tanhf(x))        \
  SPOOL_MATH1(floor, __builtin_floorf(x))      \
  SPOOL_MATH1(ceil, __builtin_ceilf(x))        \
  SPOOL_MATH1(rint, __builtin_rintf(x))        \
  SPOOL_MATH1(fabs, __builtin_fabsf(x))        \
  SPOOL_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
SPOOL_MATH
namespace precise {
SPOOL_MATH
}

template <class T>
SPOOL_INLINE T max(T a, T b) {
  return a < b ? b : a;
}
template <class T>
SPOOL_INLINE T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
SPOOL_INLINE T abs(T x) {
  return x < T(0) ? T(-x) : x;
}
SPOOL_INLINE bool isnan(float x) { return x != x; }
template <class To, class From>
SPOOL_INLINE To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From), "as_type");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
}  // namespace metal
