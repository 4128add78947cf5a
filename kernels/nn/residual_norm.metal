// A simdgroup takes a row. inputs x[rows, N], change[rows, N], weight[N], bias[N]
// outputs total[rows, N] (x + change, half of it where HALF), y[rows, N] (its layer norm, of the total as it is stored)
// The mean first, the variance about it second: one pass would cancel digits.
const int lane = int(thread_index_in_simdgroup);
const int n = x_shape[1], full = n / 32 * 32, rest = n - full;
const int row = int(threadgroup_position_in_grid.x) * NSG + int(simdgroup_index_in_threadgroup);
if (row < x_shape[0]) {  // the same in every lane
  auto from = x + row * n;
  auto more = change + row * n;
  auto sum = total + row * n;
  auto to = y + row * n;
  const float share = HALF ? 0.5f : 1.0f;
  slots part = 0.0f;
  for (int i = 0; i < full; i += 32) {
    put_slots<T>(sum + i, lane, take_slots(from + i, lane) + take_slots(more + i, lane) * share);
    part += take_slots(sum + i, lane);
  }
  if (rest > 0) {
    const slots v = take_slots(from + full, lane, 0, rest, 0.0f) + take_slots(more + full, lane, 0, rest, 0.0f) * share;
    put_slots<T>(sum + full, lane, 0, rest, v);
    part += take_slots(sum + full, lane, 0, rest, 0.0f);
  }
  const float mean = slot_sum(part) / float(n);
  part = 0.0f;
  for (int i = 0; i < full; i += 32) {
    const slots d = take_slots(sum + i, lane) - mean;
    part = fma(d, d, part);
  }
  if (rest > 0) {
    const slots d = take_slots(sum + full, lane, 0, rest, mean) - mean;
    part = fma(d, d, part);
  }
  const float scale = 1.0f / sqrt(slot_sum(part) / float(n) + 1e-5f);
  for (int i = 0; i < full; i += 32) {
    const slots d = (take_slots(sum + i, lane) - mean) * scale;
    put_slots<T>(to + i, lane, fma(d, take_slots(weight + i, lane), take_slots(bias + i, lane)));
  }
  if (rest > 0) {
    const slots d = (take_slots(sum + full, lane, 0, rest, mean) - mean) * scale;
    const slots w = take_slots(weight + full, lane, 0, rest, 0.0f), b = take_slots(bias + full, lane, 0, rest, 0.0f);
    put_slots<T>(to + full, lane, 0, rest, fma(d, w, b));
  }
}
