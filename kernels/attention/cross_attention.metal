// A threadgroup takes one head of one utterance, and up to Q of its rows at a time: keys and values are read once
// for all of them.
// inputs queries[R, H, D], keys[U, H, D, T] or, TILED, [U, H, N, D, 64], values[U, H, T, D], utterances[R] (of a row; outside 0..U-1: none),
// lengths[U] (frames); outputs y[R, H, D]
// An utterance's frames are cut into PARTS parts of whole blocks of 32, each with its own running maximum: the order
// of sums depends on the length alone, not on the padding and not on how many simdgroups share the work.
constexpr int PARTS = 8;
constexpr int C = D / 32;
constexpr int TOGETHER = rows_together(Q);  // a CPU takes as many rows as it has registers for; keys for others come from its cache
constexpr int C_TOGETHER = SIMD_W == 1 && C % 2 == 0 ? 2 : 1;
threadgroup float query[Q * D];
threadgroup float weight[NSG * Q * 64];
threadgroup float part_top[PARTS * Q];
threadgroup float part_sum[PARTS * Q];
threadgroup float part_out[PARTS * Q * D];
const int lane = int(thread_index_in_simdgroup);
const int sg = int(simdgroup_index_in_threadgroup);
const int group = int(threadgroup_position_in_grid.x);
const int heads = keys_shape[1];
const int frames = values_shape[2];
const int rows = utterances_shape[0];
const int u = group / heads;
const int h = group - u * heads;
const int length = lengths[u] < frames ? lengths[u] : frames;
const int blocks = length > 0 ? (length + 31) / 32 : 0;
const int blocks_a_part = (blocks + PARTS - 1) / PARTS;
const float scale = SCALED ? 1.0f : 1.0f / sqrt(float(D));
const int across = TILED ? 64 : frames;  // from one number of a frame's key to the next
auto key = keys + group * D * (TILED ? keys_shape[2] * 64 : frames);
auto value = values + group * D * frames;
auto w = weight + sg * Q * 64;
if (u == 0)
  for (int r = sg; r < rows; r += NSG)
    if (utterances[r] < 0 || utterances[r] >= keys_shape[0])
      for (int c = 0; c < C; c++) put_slots<T>(y + (r * heads + h) * D + c * 32, lane, 0.0f);
int from = 0;
while (from < rows) {  // the same in every lane of every simdgroup
  int row[Q];
  for (int q = 0; q < Q; q++) {
    int next = NOWHERE;
    for (int r = from + lane; r < rows && next == NOWHERE; r += SIMD_W)
      if (utterances[r] == u) next = r;
    row[q] = simd_min(next);
    from = row[q] == NOWHERE ? rows : row[q] + 1;
  }
  if (row[0] == NOWHERE) break;
  for (int q = 0; q < Q; q++)
    if (q % NSG == sg)
      for (int d = lane; d < D; d += SIMD_W)
        query[q * D + d] = row[q] == NOWHERE ? 0.0f : float(queries[(row[q] * heads + h) * D + d]) * scale;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int part = sg; part < PARTS; part += NSG) {
    slots out[Q * C];
    slots sum[Q];
    float top[Q];
    for (int q = 0; q < Q; q++) {
      sum[q] = 0.0f;
      top[q] = -INFINITY;
      for (int c = 0; c < C; c++) out[q * C + c] = 0.0f;
    }
    const int end = (part + 1) * blocks_a_part < blocks ? (part + 1) * blocks_a_part : blocks;
    for (int block = part * blocks_a_part; block < end; block += 2) {
      // Two blocks at once, so that longer stretches of a key's row are read; the last one may be alone.
      const int t = block * 32;
      const int left = block + 1 < end ? length - t : length - t < 32 ? length - t : 32;
      const int many = left < 64 ? left : 64;
      auto near_key = key + (TILED ? t / 64 * 64 * D + t % 64 : t);
      auto far_key = key + (TILED ? (t + 32) / 64 * 64 * D + (t + 32) % 64 : t + 32);
      auto near_value = value + t * D;
      float fade[Q];
      for (int first = 0; first < Q; first += TOGETHER) {
        slots near[TOGETHER];
        slots far[TOGETHER];
        for (int q = 0; q < TOGETHER; q++) {
          near[q] = 0.0f;
          far[q] = 0.0f;
        }
        if (left >= 64) {
          for (int d = 0; d < D; d++) {
            const slots k = take_slots(near_key + d * across, lane);
            const slots l = take_slots(far_key + d * across, lane);
            if (first == 0) ask_ahead(near_value + d * 64, 64);
            for (int q = 0; q < TOGETHER; q++) {
              near[q] = fma(k, slots(query[(first + q) * D + d]), near[q]);
              far[q] = fma(l, slots(query[(first + q) * D + d]), far[q]);
            }
          }
        } else {
          for (int d = 0; d < D; d++) {
            const slots k = take_slots(near_key + d * across, lane, 0, left, 0.0f);
            const slots l = take_slots(far_key + d * across, lane, 0, left - 32, 0.0f);
            for (int q = 0; q < TOGETHER; q++) {
              near[q] = fma(k, slots(query[(first + q) * D + d]), near[q]);
              far[q] = fma(l, slots(query[(first + q) * D + d]), far[q]);
            }
          }
        }
        for (int q = 0; q < TOGETHER; q++) {
          auto own = w + (first + q) * 64;  // each lane reads what it wrote
          if (left < 64) {
            put_slots<float>(own, lane, near[q]);
            put_slots<float>(own + 32, lane, far[q]);
            near[q] = take_slots(own, lane, 0, left, -INFINITY);
            far[q] = take_slots(own + 32, lane, 0, left - 32, -INFINITY);
          }
          const float most = slot_max(larger(near[q], far[q]));
          const float next = most > top[first + q] ? most : top[first + q];
          const float shift = next > -INFINITY ? next : 0.0f;
          fade[first + q] = exp(top[first + q] - shift);
          top[first + q] = next;
          const slots e = exp(near[q] - shift);
          const slots f = exp(far[q] - shift);
          sum[first + q] = sum[first + q] * fade[first + q] + (e + f);
          put_slots<float>(own, lane, e);
          put_slots<float>(own + 32, lane, f);
        }
      }
      simdgroup_barrier(mem_flags::mem_threadgroup);
      for (int first = 0; first < Q; first += TOGETHER)
        for (int c = 0; c < C; c += C_TOGETHER) {
          slots part_of[TOGETHER * C_TOGETHER];
          for (int q = 0; q < TOGETHER; q++)
            for (int e = 0; e < C_TOGETHER; e++)
              part_of[q * C_TOGETHER + e] = out[(first + q) * C + c + e] * fade[first + q];
          for (int j = 0; j < many; j++) {
            if (TILED && first == 0 && c == 0) ask_ahead(near_key + D * 64 + j * 64, 64);
            for (int e = 0; e < C_TOGETHER; e++) {
              const slots v = take_slots(near_value + j * D + (c + e) * 32, lane);
              for (int q = 0; q < TOGETHER; q++)
                part_of[q * C_TOGETHER + e] = fma(v, slots(w[(first + q) * 64 + j]), part_of[q * C_TOGETHER + e]);
            }
          }
          for (int q = 0; q < TOGETHER; q++)
            for (int e = 0; e < C_TOGETHER; e++) out[(first + q) * C + c + e] = part_of[q * C_TOGETHER + e];
        }
      simdgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (int q = 0; q < Q; q++) {
      const float all = slot_sum(sum[q]);
      if (lane == 0) {
        part_top[part * Q + q] = top[q];
        part_sum[part * Q + q] = all;
      }
      for (int c = 0; c < C; c++) put_slots<float>(part_out + (part * Q + q) * D + c * 32, lane, out[q * C + c]);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int q = 0; q < Q; q++)
    if (q % NSG == sg && row[q] != NOWHERE) {
      float top = -INFINITY;
      for (int p = 0; p < PARTS; p++) top = part_top[p * Q + q] > top ? part_top[p * Q + q] : top;
      const float shift = top > -INFINITY ? top : 0.0f;
      float sum = 0.0f;
      slots out[C];
      for (int c = 0; c < C; c++) out[c] = 0.0f;
      for (int p = 0; p < PARTS; p++) {
        const float share = exp(part_top[p * Q + q] - shift);
        sum = fma(part_sum[p * Q + q], share, sum);
        for (int c = 0; c < C; c++)
          out[c] = fma(take_slots(part_out + (p * Q + q) * D + c * 32, lane), slots(share), out[c]);
      }
      for (int c = 0; c < C; c++)
        put_slots<T>(y + (row[q] * heads + h) * D + c * 32, lane, length > 0 ? out[c] / slots(sum) : slots(0.0f));
    }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
