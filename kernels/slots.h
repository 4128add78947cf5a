// slots.h: a simdgroup owns 32 slots, whatever its width. Slot s stands for elements s, s + 32, s + 64, ...
// `slots` holds a lane's share of one value a slot: a float on a GPU, where a lane is a slot, and 32 floats in
// vector registers on the one-lane build of a CPU (shim/cpu/wide_slots.h), with the same operators and functions.
#ifndef SIMD_W
#define SIMD_W 32
#endif
#if SIMD_W == 32
typedef float slots;

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
#endif
