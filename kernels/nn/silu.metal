// A simdgroup takes SPAN elements. inputs x[n]; outputs y[n]
const int lane = int(thread_index_in_simdgroup);
const int unit = int(threadgroup_position_in_grid.x) * NSG + int(simdgroup_index_in_threadgroup);
const int first = unit * SPAN;
const int last = first + SPAN < x_shape[0] ? first + SPAN : x_shape[0];
for (int i = first; i < last; i += 32) {
  const bool full = i + 32 <= last;
  const slots v = full ? take_slots(x + i, lane) : take_slots(x + i, lane, 0, last - i, 0.0f);
  const slots r = v / (1.0f + exp(-v));
  if (full)
    put_slots<T>(y + i, lane, r);
  else
    put_slots<T>(y + i, lane, 0, last - i, r);
}
