// A threadgroup takes an utterance: diagonal by diagonal forwards, then one lane walks back.
// inputs gains[B, N, M], rows[B], columns[B]; outputs o_starts[B, N], o_ways[B, N + M - 1, N] (where the best path to
// cell (i, d - i) comes from: 0 both, 1 the row before, 2 the column before)
// Template: WIDEST, at least N.
constexpr int LINE = WIDEST + 1;  // entry i + 1 is row i; entry 0, the row before all, is out of reach
threadgroup float line[3 * LINE];
const int lane = int(thread_index_in_simdgroup);
const int sg = int(simdgroup_index_in_threadgroup);
const int b = int(threadgroup_position_in_grid.x);
const int at = sg * SIMD_W + lane;
const int height = gains_shape[1], width = gains_shape[2];
const int n = rows[b] < height ? rows[b] : height;
const int m = columns[b] < width ? columns[b] : width;
const bool some = n > 0 && m > 0;
auto x = gains + b * height * width;
auto ways = o_ways + b * (height + width - 1) * height;
for (int i = (some ? n : 0) + at; i < height; i += NSG * SIMD_W) o_starts[b * height + i] = -1;
for (int e = at; e < 3 * LINE; e += NSG * SIMD_W) line[e] = e == LINE ? 0.0f : -INFINITY;
threadgroup_barrier(mem_flags::mem_threadgroup);
for (int d = 0; some && d < n + m - 1; d++) {  // the same in every lane
  auto now = line + d % 3 * LINE;
  auto before = line + (d + 2) % 3 * LINE;
  auto corner = line + (d + 1) % 3 * LINE;
  if (d == 1 && at == 0) now[0] = -INFINITY;  // it was the start of the first cell
  const int lo = d - m + 1 > 0 ? d - m + 1 : 0, hi = d < n ? d : n - 1;
  for (int i = lo + at; i <= hi; i += NSG * SIMD_W) {
    const float both = corner[i], down = before[i], along = before[i + 1];
    const bool is_both = both > down && both > along, is_down = down > both && down > along;
    now[i + 1] = (is_both ? both : is_down ? down : along) + float(x[i * (width - 1) + d]);
    ways[d * height + i] = is_both ? 0 : is_down ? 1 : 2;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
threadgroup_barrier(mem_flags::mem_device);
if (at == 0 && some) {
  int i = n - 1, j = m - 1;
  while (i > 0) {
    const int way = j == 0 ? 1 : int(ways[(i + j) * height + i]);
    if (way != 2) o_starts[b * height + i] = j;
    i -= way != 2 ? 1 : 0;
    j -= way != 1 ? 1 : 0;
  }
  o_starts[b * height] = 0;
}
