// A simdgroup takes a hypothesis: what its graph's root says of each label, then what longer contexts know better.
// inputs states[B, K], which[B], alphas[B], count[S], first[S], fallback[S], penalty[S], labels[M], weights[M],
// roots[G, V], before[B, K, V] (read where ADDS); outputs y[B, K, V]
const int lane = int(thread_index_in_simdgroup);
const int beam = states_shape[1];
const int width = roots_shape[1];
const int row = int(threadgroup_position_in_grid.x) * NSG + int(simdgroup_index_in_threadgroup);
if (row < states_shape[0] * beam) {  // the same in every lane
  const int b = row / beam;
  const float alpha = alphas[b];
  auto root = roots + which[b] * width;
  auto under = before + (ADDS ? row * width : 0);
  auto out = y + row * width;
  float debt = 0.0f;
  int levels = 0;
  for (int s = states[row]; fallback[s] >= 0; s = fallback[s]) {
    debt += penalty[s];
    levels++;
  }
  for (int c = 0; c < width; c += 32) {
    const int rest = width - c;
    slots v = (take_slots(root + c, lane, 0, rest, 0.0f) + debt) * alpha;
    if (ADDS) v = v + take_slots(under + c, lane, 0, rest, 0.0f);
    put_slots<float>(out + c, lane, 0, rest, v);
  }
  simdgroup_barrier(mem_flags::mem_device);
  for (int level = levels - 1; level >= 0; level--) {
    int s = states[row];
    float owed = 0.0f;
    for (int i = 0; i < level; i++) {
      owed += penalty[s];
      s = fallback[s];
    }
    for (int arc = lane; arc < count[s]; arc += SIMD_W) {
      const int label = labels[first[s] + arc];
      const float v = (weights[first[s] + arc] + owed) * alpha;
      out[label] = ADDS ? v + under[label] : v;
    }
    simdgroup_barrier(mem_flags::mem_device);
  }
}
