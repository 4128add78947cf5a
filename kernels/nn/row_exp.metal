// A simdgroup takes a row. inputs x[rows, N]; outputs y[rows, N] = exp(x - the row's largest), total[rows] = its sum.
const int lane = int(thread_index_in_simdgroup);
const int n = x_shape[1], full = n / 32 * 32, rest = n - full;
const int row = int(threadgroup_position_in_grid.x) * NSG + int(simdgroup_index_in_threadgroup);
if (row < x_shape[0]) {  // the same in every lane
  auto from = x + row * n;
  auto to = y + row * n;
  slots top = -INFINITY, part = 0.0f;
  for (int i = 0; i < full; i += 32) top = larger(top, take_slots(from + i, lane));
  if (rest > 0) top = larger(top, take_slots(from + full, lane, 0, rest, -INFINITY));
  const float most = slot_max(top);
  for (int i = 0; i < full; i += 32) {
    const slots e = exp(take_slots(from + i, lane) - most);
    part += e;
    put_slots<T>(to + i, lane, e);
  }
  if (rest > 0) {
    const slots e = exp(take_slots(from + full, lane, 0, rest, -INFINITY) - most);
    part += e;
    put_slots<T>(to + full, lane, 0, rest, e);
  }
  const float sum = slot_sum(part);
  if (lane == 0) total[row] = sum;
}
