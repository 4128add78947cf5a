// Elements i..i+31 of a row of logits, one a slot: minus infinity where the element is outside [lo, hi) or its bit is
// set in word i / 32 of `forbidden`. i is a multiple of 32 below hi. `spare` is 32 floats of this simdgroup.
template <typename P, typename B>
inline slots allowed_slots(P x, B forbidden, int i, int lo, int hi, int lane, threadgroup float* spare) {
  const uint word = uint(forbidden[i / 32]);
  if (word == 0u && i >= lo && i + 32 <= hi) return take_slots(x + i, lane);
  for (int j = lane; j < 32; j += SIMD_W)
    spare[j] = i + j >= lo && i + j < hi && ((word >> uint(j)) & 1u) == 0u ? float(x[i + j]) : -INFINITY;
  return take_slots(spare, lane);  // each lane reads what it wrote
}
