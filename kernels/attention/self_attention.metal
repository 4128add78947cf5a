// A simdgroup takes one head of one row. Place p is column p % S of the pool's row p / S.
// inputs queries[R, H, D], keys[P, H, S, D], values[P, H, S, D], places[R, N] (of a row's positions), lengths[R]
// outputs y[R, H, D]
constexpr int C = D / 32;
threadgroup float weight[NSG * 32];
threadgroup int start[NSG * 32];  // of the column of each position, of 32 at a time
const int lane = int(thread_index_in_simdgroup);
const int sg = int(simdgroup_index_in_threadgroup);
const int heads = keys_shape[1];
const int columns = keys_shape[2];
const int steps = places_shape[1];
const int item = int(threadgroup_position_in_grid.x) * NSG + sg;
if (item < queries_shape[0] * heads) {  // the same in every lane
  const int row = item / heads;
  const int h = item - row * heads;
  const int length = lengths[row] < steps ? lengths[row] : steps;
  const float scale = SCALED ? 1.0f : 1.0f / sqrt(float(D));
  auto w = weight + sg * 32;
  auto at = start + sg * 32;
  auto place = places + row * steps;
  slots query[C];
  slots out[C];
  for (int c = 0; c < C; c++) {
    query[c] = take_slots(queries + item * D + c * 32, lane) * scale;
    out[c] = 0.0f;
  }
  slots sum = 0.0f;
  float top = -INFINITY;
  for (int t = 0; t < length; t += 32) {
    const int many = length - t < 32 ? length - t : 32;
    for (int j = lane; j < many; j += SIMD_W) {
      const int from = place[t + j] / columns;
      at[j] = ((from * heads + h) * columns + (place[t + j] - from * columns)) * D;
      ask_ahead(keys + at[j], D);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (int j = 0; j < many; j++) {
      auto key = keys + at[j];
      ask_ahead(values + at[j], D);
      slots product = take_slots(key, lane) * query[0];
      for (int c = 1; c < C; c++) product = fma(take_slots(key + c * 32, lane), query[c], product);
      const float score = slot_sum(product);
      if (lane == 0) w[j] = score;
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    const slots scores = take_slots(w, lane, 0, many, -INFINITY);
    const float most = slot_max(scores);
    const float next = most > top ? most : top;
    const float shift = next > -INFINITY ? next : 0.0f;
    const float fade = exp(top - shift);
    const slots e = exp(scores - shift);
    sum = sum * fade + e;
    top = next;
    put_slots<float>(w, lane, e);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (int c = 0; c < C; c++) out[c] = out[c] * fade;
    for (int j = 0; j < many; j++) {
      auto value = values + at[j];
      for (int c = 0; c < C; c++) out[c] = fma(take_slots(value + c * 32, lane), slots(w[j]), out[c]);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  const float all = slot_sum(sum);
  for (int c = 0; c < C; c++)
    put_slots<T>(y + item * D + c * 32, lane, length > 0 ? out[c] / slots(all) : slots(0.0f));
}
