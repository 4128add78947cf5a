// The `slots` of kernels/runtime/simd.h on a simdgroup of one lane: 32 floats in the widest registers this CPU has.
// Written with vector types because loops over arrays end in memory between any two operations; and as halves of halves
// because g++ keeps an array of registers in memory too, once it has been copied.
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

typedef int WideInt __attribute__((vector_size(sizeof(Wide))));

// N registers.
template <class W, int N>
struct Registers {
  Registers<W, N / 2> lo, hi;
};
template <class W>
struct Registers<W, 1> {
  W v;
};

struct slots {
  static constexpr int COUNT = 32 * sizeof(float) / sizeof(Wide);
  Registers<Wide, COUNT> all;

  slots() = default;
  SPOOL_INLINE slots(float value);
  SPOOL_INLINE slots(Registers<Wide, COUNT> from) : all(from) {}
  SPOOL_INLINE static slots of(const float* from);
};

// How many of them the registers hold.
#if defined(__AVX512F__) || defined(__ARM_NEON)
static constexpr int REGISTERED_SLOTS = 32 / slots::COUNT;
#else
static constexpr int REGISTERED_SLOTS = 16 / slots::COUNT;
#endif

// Divides `rows`, so that none are left over.
constexpr int rows_together(int rows) {
  int most = (REGISTERED_SLOTS - 2) / 2;
  most = most < rows ? most : rows;
  while (most > 1 && rows % most != 0) most--;
  return most;
}

template <class P>
SPOOL_INLINE void ask_ahead(P from, int count) {
  for (int i = 0; i < count; i += int(64 / sizeof(*from))) __builtin_prefetch((const void*)(from + i));
}

struct slot_ints {
  Registers<WideInt, slots::COUNT> all;

  slot_ints() = default;
  SPOOL_INLINE slot_ints(int value);
};

// f of each register and those beside it.
#define SPOOL_WIDE(...) [&](__VA_ARGS__) __attribute__((always_inline))
template <class F, class... W>
SPOOL_INLINE auto each_register(F f, Registers<W, 1>... of) -> Registers<decltype(f(of.v...)), 1> {
  return {f(of.v...)};
}
template <class F, int N, class... W>
SPOOL_INLINE auto each_register(F f, Registers<W, N>... of) -> Registers<decltype(f(W{}...)), N> {
  return {each_register(f, of.lo...), each_register(f, of.hi...)};
}
// A register filled by f(number of its first element).
template <class W, int N, class F>
SPOOL_INLINE void fill_registers(F f, Registers<W, N>& to, int first = 0) {
  if constexpr (N == 1) {
    to.v = f(first);
  } else {
    fill_registers(f, to.lo, first);
    fill_registers(f, to.hi, first + 32 / slots::COUNT * (N / 2));
  }
}
// f(register, number of its first element).
template <class W, int N, class F>
SPOOL_INLINE void visit_registers(F f, const Registers<W, N>& from, int first = 0) {
  if constexpr (N == 1) {
    f(from.v, first);
  } else {
    visit_registers(f, from.lo, first);
    visit_registers(f, from.hi, first + 32 / slots::COUNT * (N / 2));
  }
}

SPOOL_INLINE Wide wide_of(float value) { return value - Wide{}; }  // a sum would lose the sign of zero
SPOOL_INLINE Wide wide_larger(Wide a, Wide b) { return b > a ? b : a; }

SPOOL_INLINE slots::slots(float value) {
  fill_registers(SPOOL_WIDE(int) { return wide_of(value); }, all);
}
SPOOL_INLINE slot_ints::slot_ints(int value) {
  fill_registers(SPOOL_WIDE(int) { return WideInt{} + value; }, all);
}
SPOOL_INLINE slots slots::of(const float* from) {
  slots v;
  fill_registers(
      SPOOL_WIDE(int first) {
        Wide w;
        memcpy(&w, from + first, sizeof w);
        return w;
      },
      v.all);
  return v;
}

#define SPOOL_EACH1(expression) each_register(SPOOL_WIDE(Wide x) { return expression; }, a.all)
#define SPOOL_EACH2(expression) each_register(SPOOL_WIDE(Wide x, Wide y) { return expression; }, a.all, b.all)
SPOOL_INLINE slots operator+(slots a, slots b) { return SPOOL_EACH2(x + y); }
SPOOL_INLINE slots operator-(slots a, slots b) { return SPOOL_EACH2(x - y); }
SPOOL_INLINE slots operator*(slots a, slots b) { return SPOOL_EACH2(x * y); }
SPOOL_INLINE slots operator/(slots a, slots b) { return SPOOL_EACH2(x / y); }
SPOOL_INLINE slots operator-(slots a) { return SPOOL_EACH1(-x); }
SPOOL_INLINE slots& operator+=(slots& a, slots b) { return a = a + b; }
SPOOL_INLINE slots larger(slots a, slots b) { return SPOOL_EACH2(wide_larger(x, y)); }
SPOOL_INLINE slots relu_of(slots a) { return SPOOL_EACH1(x < Wide{} ? Wide{} : x); }
SPOOL_INLINE slots fma(slots a, slots b, slots c) {
  return each_register(SPOOL_WIDE(Wide x, Wide y, Wide z) { return wide_fma(x, y, z); }, a.all, b.all, c.all);
}

// metal::exp_of in whole registers, with the same operations in the same order: its bits are the same, in less than
// half the time of a loop over 32 floats in memory.
SPOOL_INLINE Wide wide_rint(Wide v) {
#if defined(__AVX512F__)
  return _mm512_roundscale_ps(v, 8);
#elif defined(__AVX__) && defined(__FMA__)
  return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif defined(__ARM_NEON)
  return vrndnq_f32(v);
#else
  for (int i = 0; i < 4; i++) v[i] = __builtin_rintf(v[i]);
  return v;
#endif
}
// p * 2^n, n whole: rounded once, also below the smallest normal number.
SPOOL_INLINE Wide wide_scale(Wide p, Wide n) {
#if defined(__AVX512F__)
  return _mm512_scalef_ps(p, n);
#else
  const WideInt power = __builtin_convertvector(n, WideInt), half = power >> 1;
  return p * (Wide)((half + 127) << 23) * (Wide)((power - half + 127) << 23);
#endif
}
SPOOL_INLINE Wide wide_within(Wide x, float lo, float hi) {  // NaN stays
#if defined(__AVX512F__)
  return _mm512_min_ps(wide_of(hi), _mm512_max_ps(wide_of(lo), x));
#else
  x = x < wide_of(lo) ? wide_of(lo) : x;
  return x > wide_of(hi) ? wide_of(hi) : x;
#endif
}
SPOOL_INLINE Wide wide_exp(Wide x) {
  // At the bounds the answer is zero and infinity as of what lies beyond.
  const Wide bounded = wide_within(x, -150.0f, 100.0f);
  const Wide power = wide_rint(bounded * wide_of(1.44269504088896341f));
  Wide rest = wide_fma(power, wide_of(-0.693359375f), bounded);
  rest = wide_fma(power, wide_of(2.12194440e-4f), rest);
  Wide p = wide_of(1.9875691500e-4f);
  p = wide_fma(p, rest, wide_of(1.3981999507e-3f));
  p = wide_fma(p, rest, wide_of(8.3334519073e-3f));
  p = wide_fma(p, rest, wide_of(4.1665795894e-2f));
  p = wide_fma(p, rest, wide_of(1.6666665459e-1f));
  p = wide_fma(p, rest, wide_of(5.0000001201e-1f));
  p = wide_fma(p, rest * rest, rest) + wide_of(1.0f);
  return wide_scale(p, power);
}
SPOOL_INLINE slots exp(slots a) { return SPOOL_EACH1(wide_exp(x)); }

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
  if constexpr (std::is_same<T, float>::value) {
    visit_registers(SPOOL_WIDE(const Wide& w, int first) { memcpy(to + first, &w, sizeof w); }, v.all);
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

// Float rows whose end is ragged, without a loop over elements.
#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#if defined(__AVX512F__)
SPOOL_INLINE __mmask16 wide_within(int first, int lo, int hi) {
  lo = lo < 0 ? 0 : lo;
  hi = hi < 32 ? hi : 32;
  const uint32_t bits = hi > lo ? (uint32_t)(((1ull << hi) - 1) & ~((1ull << lo) - 1)) : 0;
  return (__mmask16)(bits >> first);
}
SPOOL_INLINE Wide wide_load(const float* from, __mmask16 within, Wide other) {
  return _mm512_mask_loadu_ps(other, within, from);
}
SPOOL_INLINE void wide_store(float* to, __mmask16 within, Wide v) { _mm512_mask_storeu_ps(to, within, v); }
#else
SPOOL_INLINE WideInt wide_within(int first, int lo, int hi) {
  const WideInt index = WideInt{0, 1, 2, 3, 4, 5, 6, 7} + first;
  return (index >= lo) & (index < hi);
}
SPOOL_INLINE Wide wide_load(const float* from, WideInt within, Wide other) {
  return _mm256_blendv_ps(other, _mm256_maskload_ps(from, (__m256i)within), (Wide)within);
}
SPOOL_INLINE void wide_store(float* to, WideInt within, Wide v) { _mm256_maskstore_ps(to, (__m256i)within, v); }
#endif
SPOOL_INLINE slots take_slots(const float* from, int, int lo, int hi, float other) {
  slots v;
  fill_registers(
      SPOOL_WIDE(int first) { return wide_load(from + first, wide_within(first, lo, hi), wide_of(other)); }, v.all);
  return v;
}
SPOOL_INLINE slots take_slots(float* from, int lane, int lo, int hi, float other) {
  return take_slots((const float*)from, lane, lo, hi, other);
}
template <class T>
SPOOL_INLINE void put_slots(float* to, int, int lo, int hi, slots v) {
  visit_registers(SPOOL_WIDE(Wide w, int first) { wide_store(to + first, wide_within(first, lo, hi), w); }, v.all);
}
#endif

// The order of the butterfly between 32 lanes: halves on halves.
template <class F>
SPOOL_INLINE Wide fold_registers(F f, Registers<Wide, 1> of) {
  return of.v;
}
template <class F, int N>
SPOOL_INLINE Wide fold_registers(F f, Registers<Wide, N> of) {
  return fold_registers(f, each_register(f, of.lo, of.hi));
}
template <class F>
SPOOL_INLINE float fold_wide(F f, Wide v) {
#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#if defined(__AVX512F__)
  __m256 half = f(_mm512_castps512_ps256(v), _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1)));
#else
  __m256 half = v;
#endif
  __m128 t = f(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  t = f(t, _mm_movehl_ps(t, t));
  t = f(t, _mm_shuffle_ps(t, t, 1));
  return t[0];
#else
  constexpr int SIZE = sizeof(Wide) / sizeof(float);
  typedef float One __attribute__((vector_size(sizeof(float))));
  One t[SIZE];
  memcpy(t, &v, sizeof t);
  for (int o = SIZE / 2; o > 0; o >>= 1)
    for (int i = 0; i < o; i++) t[i] = f(t[i], t[i + o]);
  return t[0][0];
#endif
}
SPOOL_INLINE float slot_sum(slots v) {
  const auto sum = [](auto a, auto b) __attribute__((always_inline)) { return a + b; };
  return fold_wide(sum, fold_registers(sum, v.all));
}
SPOOL_INLINE float slot_max(slots v) {
  const auto most = [](auto a, auto b) __attribute__((always_inline)) { return a < b ? b : a; };
  return fold_wide(most, fold_registers(most, v.all));
}

template <int N>
SPOOL_INLINE void keep_larger(Registers<Wide, N>& best, Registers<WideInt, N>& at, Registers<Wide, N> v, int i) {
  if constexpr (N == 1) {
    const auto larger_here = v.v > best.v;
    best.v = larger_here ? v.v : best.v;
    at.v = larger_here ? WideInt{} + i : at.v;
  } else {
    keep_larger(best.lo, at.lo, v.lo, i);
    keep_larger(best.hi, at.hi, v.hi, i);
  }
}
SPOOL_INLINE void keep_larger(slots& best, slot_ints& at, slots v, int i) { keep_larger(best.all, at.all, v.all, i); }
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
