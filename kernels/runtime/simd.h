// simd.h: a simdgroup owns 32 slots, whatever its width. Slot s stands for elements s, s + 32, s + 64, ...
// `slots` holds a lane's share of one value a slot: a float on a GPU, where a lane is a slot, and 32 floats in
// vector registers on the one-lane build of a CPU (shim/cpu/wide_slots.h), with the same operators and functions.
#ifndef SIMD_W
#define SIMD_W 32
#endif
#if SIMD_W == 32
static constant constexpr int NOWHERE = 0x7fffffff;

typedef float slots;
typedef int slot_ints;

// How many of `rows` rows with two sums each a lane takes at once: as many as its registers hold.
constexpr int rows_together(int rows) { return rows; }

// The `count` elements from here are needed soon: a CPU begins to read them. They may lie beyond the end.
template <typename P>
inline void ask_ahead(P, int) {}

// Elements 0..31 from `from`, one a slot.
template <typename P>
inline slots take_slots(P from, int lane) {
  return float(from[lane]);
}
// The same of those in [lo, hi); the other slots hold `other`, and nothing is read for them.
template <typename P>
inline slots take_slots(P from, int lane, int lo, int hi, float other) {
  return lane >= lo && lane < hi ? float(from[lane]) : other;
}
template <typename T, typename P>
inline void put_slots(P to, int lane, slots v) {
  to[lane] = T(v);
}
// Writes slots [lo, hi) alone.
template <typename T, typename P>
inline void put_slots(P to, int lane, int lo, int hi, slots v) {
  if (lane >= lo && lane < hi) to[lane] = T(v);
}
inline slots larger(slots a, slots b) { return b > a ? b : a; }  // a where b is NaN
inline slots relu_of(slots v) { return v < 0.0f ? 0.0f : v; }

// Sum over the slots in one fixed order (xor 16, 8, 4, 2, 1), so that it is the same on every machine.
inline float slot_sum(slots v) {
  for (int o = 16; o > 0; o >>= 1) v += simd_shuffle_xor(v, ushort(o));
  return v;
}
inline float slot_max(slots v) { return simd_max(v); }

// Where v is larger than what a slot holds, it takes the slot, and `i` is noted.
inline void keep_larger(thread slots& best, thread slot_ints& at, slots v, int i) {
  const bool larger_here = v > best;
  best = larger_here ? v : best;
  at = larger_here ? i : at;
}
// The first element among the slots that hold `value`: a slot's element is what was noted and its own number.
inline int first_of(slots best, slot_ints at, int lane, float value) {
  return simd_min(best == value && at != NOWHERE ? at + lane : NOWHERE);
}
// As keep_larger, of one element: the i-th of all.
inline void offer_slot(thread slots& best, thread slot_ints& at, int lane, float value, int i) {
  if (lane == i % 32 && value > best) {
    best = value;
    at = i - lane;
  }
}
inline void set_slot(thread slots& best, thread slot_ints& at, int lane, int slot, float value, int i) {
  if (lane == slot) {
    best = value;
    at = i;
  }
}
#endif

// A score on the grid of kernels/search/fixed_point.py: halves up, within 255 of zero; what is not finite stays.
inline float on_grid(float x) {
  const float rounded = floor(x * 65536.0f + 0.5f) * (1.0f / 65536.0f);
  if (!(x > -INFINITY && x < INFINITY)) return x;
  return rounded < -255.0f ? -255.0f : rounded > 255.0f ? 255.0f : rounded;
}

// The best element of each slot over x[0, n), the lowest index among equals: NaN and -infinity never enter.
template <typename P>
inline void best_of_slots(P x, int n, int lane, thread slots& best, thread slot_ints& at) {
  best = -INFINITY;
  at = NOWHERE;
  const int full = n / 32 * 32;
  for (int i = 0; i < full; i += 32) keep_larger(best, at, take_slots(x + i, lane), i);
  if (full < n) keep_larger(best, at, take_slots(x + full, lane, 0, n - full, -INFINITY), full);
}

// A row of labels with what is added to each, and a last element that is given: read like a row.
template <typename P, typename Q>
struct Sum {
  P x;
  Q bonus;
  int last;
  float end;
};
template <typename P, typename Q>
inline Sum<P, Q> sum_of(P x, Q bonus, int last, float end) {
  Sum<P, Q> row = {x, bonus, last, end};
  return row;
}
template <typename P>
inline float element(P x, int i) {
  return float(x[i]);
}
template <typename P, typename Q>
inline float element(Sum<P, Q> row, int i) {
  return i == row.last ? row.end : float(row.x[i]) + row.bonus[i];
}

// Take the best element out of the slots, the lowest index among equals, and refill its slot from x[0, n).
// Every lane gets it: its value and its index, NOWHERE when none is left.
template <typename P>
inline void pop_best(P x, int n, int lane, thread slots& best, thread slot_ints& at, thread float& value,
                     thread int& index) {
  value = slot_max(best);
  index = first_of(best, at, lane, value);
  if (index == NOWHERE) return;  // the same in every lane
  const int slot = index % 32;
  float next = -INFINITY;
  int where = NOWHERE;
  for (int i = slot + lane * 32; i < n; i += 32 * SIMD_W) {
    const float v = element(x, i);
    const bool behind = v < value || (v == value && i > index);
    if (behind && v > next) {
      next = v;
      where = i;
    }
  }
  const float top = simd_max(next);
  where = simd_min(next == top ? where : NOWHERE);
  set_slot(best, at, lane, slot, top, where == NOWHERE ? NOWHERE : where - slot);
}

// best_of_slots of the row that sum_of(x, bonus, last, end) is.
template <typename P, typename Q>
inline void best_of_sum(P x, Q bonus, int last, float end, int lane, thread slots& best, thread slot_ints& at) {
  best = -INFINITY;
  at = NOWHERE;
  const int full = last / 32 * 32;
  for (int i = 0; i < full; i += 32)
    keep_larger(best, at, take_slots(x + i, lane) + take_slots(bonus + i, lane), i);
  if (full < last)
    keep_larger(best, at,
                take_slots(x + full, lane, 0, last - full, -INFINITY) +
                    take_slots(bonus + full, lane, 0, last - full, 0.0f),
                full);
  offer_slot(best, at, lane, end, last);
}
