// The `slots` of kernels/runtime/simd.h on a simdgroup of one lane: 32 floats in the widest registers this CPU has.
// Written with vector types because loops over arrays end in memory between any two operations.
#pragma once

#if defined(__AVX512F__)
typedef __m512 Wide;
SPOOL_INLINE Wide wide_fma(Wide a, Wide b, Wide c) { return _mm512_fmadd_ps(a, b, c); }
#elif defined(__AVX__) && defined(__FMA__)
typedef __m256 Wide;
SPOOL_INLINE Wide wide_fma(Wide a, Wide b, Wide c) { return _mm256_fmadd_ps(a, b, c); }
#elif defined(__ARM_NEON)
typedef float32x4_t Wide;
SPOOL_INLINE Wide wide_fma(Wide a, Wide b, Wide c) { return vfmaq_f32(c, a, b); }
#else
typedef float Wide __attribute__((vector_size(16)));
SPOOL_INLINE Wide wide_fma(Wide a, Wide b, Wide c) {
  for (int i = 0; i < 4; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
}
#endif

static constexpr int NOWHERE = 0x7fffffff;

struct slots {
  static constexpr int COUNT = 32 * sizeof(float) / sizeof(Wide);
  Wide part[COUNT];

  slots() = default;
  SPOOL_INLINE slots(float value) {
    for (int i = 0; i < COUNT; i++) part[i] = value - Wide{};  // a sum would lose the sign of zero
  }
  SPOOL_INLINE static slots of(const float* from) {
    // Register by register: as one block g++ copies it through the stack, which costs more than the load.
    slots v;
    for (int i = 0; i < COUNT; i++) memcpy(&v.part[i], from + i * (32 / COUNT), sizeof(Wide));
    return v;
  }
};

typedef int WideInt __attribute__((vector_size(sizeof(Wide))));
struct slot_ints {
  WideInt part[slots::COUNT];

  slot_ints() = default;
  SPOOL_INLINE slot_ints(int value) {
    for (int i = 0; i < slots::COUNT; i++) part[i] = WideInt{} + value;
  }
};

#define SPOOL_EACH(expression)                                       \
  slots r;                                                           \
  _Pragma("GCC unroll 8") for (int i = 0; i < slots::COUNT; i++) r.part[i] = (expression); \
  return r

SPOOL_INLINE slots operator+(slots a, slots b) { SPOOL_EACH(a.part[i] + b.part[i]); }
SPOOL_INLINE slots operator-(slots a, slots b) { SPOOL_EACH(a.part[i] - b.part[i]); }
SPOOL_INLINE slots operator*(slots a, slots b) { SPOOL_EACH(a.part[i] * b.part[i]); }
SPOOL_INLINE slots operator/(slots a, slots b) { SPOOL_EACH(a.part[i] / b.part[i]); }
SPOOL_INLINE slots operator-(slots a) { SPOOL_EACH(-a.part[i]); }
SPOOL_INLINE slots& operator+=(slots& a, slots b) { return a = a + b; }
SPOOL_INLINE slots fma(slots a, slots b, slots c) { SPOOL_EACH(wide_fma(a.part[i], b.part[i], c.part[i])); }
SPOOL_INLINE slots larger(slots a, slots b) { SPOOL_EACH(b.part[i] > a.part[i] ? b.part[i] : a.part[i]); }
SPOOL_INLINE slots relu_of(slots v) { SPOOL_EACH(v.part[i] < Wide{} ? Wide{} : v.part[i]); }

SPOOL_INLINE slots exp(slots v) {
  float t[32];
  memcpy(t, &v, sizeof t);
  for (int i = 0; i < 32; i++) t[i] = metal::exp_of(t[i]);
  return slots::of(t);
}

SPOOL_INLINE slots take_slots(const float* from, int) { return slots::of(from); }
SPOOL_INLINE slots take_slots(float* from, int) { return slots::of(from); }
template <class P>
SPOOL_INLINE slots take_slots(P from, int) {
  float t[32];
  for (int i = 0; i < 32; i++) t[i] = float(from[i]);
  return slots::of(t);
}
template <class P>
SPOOL_INLINE slots take_slots(P from, int, int lo, int hi, float other) {
  float t[32];
  for (int i = 0; i < 32; i++) t[i] = other;
  for (int i = lo < 0 ? 0 : lo; i < (hi < 32 ? hi : 32); i++) t[i] = float(from[i]);
  return slots::of(t);
}

template <class T, class P>
SPOOL_INLINE void put_slots(P to, int, slots v) {
  if (std::is_same<T, float>::value) {
    for (int i = 0; i < slots::COUNT; i++) memcpy(to + i * (32 / slots::COUNT), &v.part[i], sizeof(Wide));
  } else {
    float t[32];
    memcpy(t, &v, sizeof t);
    for (int i = 0; i < 32; i++) to[i] = T(t[i]);
  }
}
template <class T, class P>
SPOOL_INLINE void put_slots(P to, int, int lo, int hi, slots v) {
  float t[32];
  memcpy(t, &v, sizeof t);
  for (int i = lo < 0 ? 0 : lo; i < (hi < 32 ? hi : 32); i++) to[i] = T(t[i]);
}

#if defined(__AVX512F__)
// Float rows whose end is ragged, without a loop over elements.
SPOOL_INLINE uint32_t slot_bits(int lo, int hi) {
  lo = lo < 0 ? 0 : lo;
  hi = hi < 32 ? hi : 32;
  return hi > lo ? (uint32_t)(((1ull << hi) - 1) & ~((1ull << lo) - 1)) : 0;
}
SPOOL_INLINE slots take_slots(const float* from, int, int lo, int hi, float other) {
  const uint32_t bits = slot_bits(lo, hi);
  slots v = other;
  v.part[0] = _mm512_mask_loadu_ps(v.part[0], (__mmask16)bits, from);
  v.part[1] = _mm512_mask_loadu_ps(v.part[1], (__mmask16)(bits >> 16), from + 16);
  return v;
}
SPOOL_INLINE slots take_slots(float* from, int lane, int lo, int hi, float other) {
  return take_slots((const float*)from, lane, lo, hi, other);
}
template <class T>
SPOOL_INLINE void put_slots(float* to, int, int lo, int hi, slots v) {
  const uint32_t bits = slot_bits(lo, hi);
  _mm512_mask_storeu_ps(to, (__mmask16)bits, v.part[0]);
  _mm512_mask_storeu_ps(to + 16, (__mmask16)(bits >> 16), v.part[1]);
}
#endif

// The order of the butterfly between 32 lanes: halves on halves.
SPOOL_INLINE float slot_sum(slots v) {
  float t[32];
  memcpy(t, &v, sizeof t);
  for (int o = 16; o > 0; o >>= 1)
    for (int i = 0; i < o; i++) t[i] = t[i] + t[i + o];
  return t[0];
}
SPOOL_INLINE float slot_max(slots v) {
  float t[32];
  memcpy(t, &v, sizeof t);
  for (int o = 16; o > 0; o >>= 1)
    for (int i = 0; i < o; i++) t[i] = t[i] < t[i + o] ? t[i + o] : t[i];
  return t[0];
}

SPOOL_INLINE void keep_larger(slots& best, slot_ints& at, slots v, int i) {
  _Pragma("GCC unroll 8") for (int k = 0; k < slots::COUNT; k++) {
    const auto larger_here = v.part[k] > best.part[k];
    best.part[k] = larger_here ? v.part[k] : best.part[k];
    at.part[k] = larger_here ? WideInt{} + i : at.part[k];
  }
}
SPOOL_INLINE int first_of(slots best, slot_ints at, int, float value) {
  float held[32];
  int noted[32];
  memcpy(held, &best, sizeof held);
  memcpy(noted, &at, sizeof noted);
  for (int i = 0; i < 32; i++) noted[i] = held[i] == value && noted[i] != NOWHERE ? noted[i] + i : NOWHERE;
  for (int o = 16; o > 0; o >>= 1)
    for (int i = 0; i < o; i++) noted[i] = noted[i] < noted[i + o] ? noted[i] : noted[i + o];
  return noted[0];
}
SPOOL_INLINE void offer_slot(slots& best, slot_ints& at, int, float value, int i) {
  const int slot = i % 32, noted = i - slot;
  float held;
  memcpy(&held, (char*)&best + slot * sizeof held, sizeof held);
  if (value > held) {
    memcpy((char*)&best + slot * sizeof value, &value, sizeof value);
    memcpy((char*)&at + slot * sizeof noted, &noted, sizeof noted);
  }
}
SPOOL_INLINE void set_slot(slots& best, slot_ints& at, int, int slot, float value, int i) {
  memcpy((char*)&best + slot * sizeof value, &value, sizeof value);
  memcpy((char*)&at + slot * sizeof i, &i, sizeof i);
}
