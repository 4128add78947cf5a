// A simdgroup takes a row. inputs x[rows, N], bias[N]; outputs y[rows, N] = gelu(x + bias)
// gelu(v) = (v + |v| erf(|v| / sqrt 2)) / 2, erf by Abramowitz and Stegun 7.1.26: within 1.5e-7 everywhere.
const int lane = int(thread_index_in_simdgroup);
const int n = x_shape[1];
const int row = int(threadgroup_position_in_grid.x) * NSG + int(simdgroup_index_in_threadgroup);
if (row < x_shape[0]) {  // the same in every lane
  auto from = x + row * n;
  auto to = y + row * n;
  for (int i = 0; i < n; i += 32) {
    const bool full = i + 32 <= n;
    const slots v = full ? take_slots(from + i, lane) + take_slots(bias + i, lane)
                         : take_slots(from + i, lane, 0, n - i, 0.0f) + take_slots(bias + i, lane, 0, n - i, 0.0f);
    const slots size = larger(v, 0.0f - v);
    const slots z = size * 0.70710678f;
    const slots t = 1.0f / (1.0f + z * 0.3275911f);
    slots p = t * 1.061405429f - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const slots e = 1.0f - p * t * exp(0.0f - z * z);
    const slots r = (v + size * e) * 0.5f;
    if (full)
      put_slots<T>(to + i, lane, r);
    else
      put_slots<T>(to + i, lane, 0, n - i, r);
  }
}
