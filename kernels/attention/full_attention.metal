// A simdgroup takes 32 queries of one head of one sequence, a slot each, and the keys and values in blocks with a
// running maximum: no score leaves its memory, and lanes exchange nothing.
// inputs x[B, N, 3 * H * D], queries (scaled), keys and values of all heads side by side; outputs y[B, N, H * D]
constexpr int BLOCK = 60;
#if SIMD_W == 1 && defined(__AVX512F__)
constexpr int KEYS = 12;  // as many sums as a CPU has registers for
#elif SIMD_W == 1
constexpr int KEYS = 3;
#else
constexpr int KEYS = 6;
#endif
constexpr int COLUMNS = SIMD_W == 1 && KEYS == 3 ? 2 : 8;
constexpr int ROW = 3 * H * D;
threadgroup float query[D * 32];
threadgroup float weight[BLOCK * 32];
threadgroup float out[D * 32];
const int lane = int(thread_index_in_simdgroup);
const int length = x_shape[1];
const int blocks = (length + 31) / 32;
const int group = int(threadgroup_position_in_grid.x);
const int head = group / blocks % H;
const int sequence = group / blocks / H;
const int first = group % blocks * 32;
const int rows = length - first < 32 ? length - first : 32;
auto from = x + sequence * length * ROW + head * D;
auto to = y + (sequence * length + first) * H * D + head * D;
for (int i = lane; i < 32; i += SIMD_W)
  for (int d = 0; d < D; d++) {
    query[d * 32 + i] = i < rows ? float(from[(first + i) * ROW + d]) : 0.0f;
    out[d * 32 + i] = 0.0f;
  }
slots top = -3.4028235e38f, sum = 0.0f;  // finite, so that keys of minus infinity alone in a block weigh nothing
for (int t = 0; t < length; t += BLOCK) {
  const int many = length - t < BLOCK ? length - t : BLOCK;
  auto key = from + t * ROW + H * D;
  slots next = top;
  int j = 0;
  for (; j + KEYS <= many; j += KEYS)
    next = larger(next, key_products<KEYS, D>(query, key + j * ROW, ROW, lane, weight + j * 32));
  for (; j < many; j++) next = larger(next, key_products<1, D>(query, key + j * ROW, ROW, lane, weight + j * 32));
  const slots fade = exp(top - next);
  top = next;
  sum = sum * fade;
  for (j = 0; j < many; j++) {
    const slots e = exp(take_slots(weight + j * 32, lane) - top);
    sum = sum + e;
    put_slots<float>(weight + j * 32, lane, e);
  }
  for (int c = 0; c < D; c += COLUMNS)
    add_values<COLUMNS>(weight, key + H * D + c, ROW, many, fade, lane, out + c * 32);
}
for (int d = 0; d < D; d++) put_slots<float>(out + d * 32, lane, take_slots(out + d * 32, lane) / sum);
for (int i = lane; i < rows; i += SIMD_W)
  for (int d = 0; d < D; d++) to[i * H * D + d] = T(out[d * 32 + i]);
