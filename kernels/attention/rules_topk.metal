// A threadgroup takes a row. Its tokens are cut into chunks, those of text before those of times; of each chunk the
// maximum and the sum of exponentials are kept, and the N best tokens stand in the N chunks with the largest maxima.
// inputs logits[R, V], rules[R, 5] (row of `forbidden`, first text, first time, end of times, whether times outweigh),
// forbidden[S, W] (bits, W = words of V); outputs o_tokens[R, N], o_scores[R, N]
// Template: V tokens, those from TIMES on are times; N best.
constexpr int SPAN = 512;
constexpr int BASE = TIMES / 32 * 32;  // chunks of times start at a word of bits
constexpr int TEXT = (TIMES + SPAN - 1) / SPAN;
constexpr int ALL = TEXT + (V - BASE + SPAN - 1) / SPAN;
threadgroup float chunk_top[ALL];
threadgroup float chunk_sum[ALL];
threadgroup float spare[NSG * 32];
threadgroup float candidate[N * SPAN];
threadgroup int picked[N];
threadgroup int ordered[N];
const int lane = int(thread_index_in_simdgroup);
const int sg = int(simdgroup_index_in_threadgroup);
const int row = int(threadgroup_position_in_grid.x);
auto x = logits + row * V;
auto rule = rules + row * 5;
auto bits = forbidden + rule[0] * ((V + 31) / 32);
auto own = spare + sg * 32;
const int text_lo = rule[1] > 0 ? rule[1] : 0;
const int time_lo = rule[2] > TIMES ? rule[2] : TIMES;
const int time_hi = rule[3] < V ? rule[3] : V;
for (int c = sg; c < ALL; c += NSG) {
  const int begin = c < TEXT ? c * SPAN : BASE + (c - TEXT) * SPAN;
  const int lo = c < TEXT ? text_lo : time_lo, last = c < TEXT ? TIMES : time_hi;
  const int hi = begin + SPAN < last ? begin + SPAN : last;
  slots best = -INFINITY;
  for (int i = lo > begin ? lo / 32 * 32 : begin; i < hi; i += 32)
    best = larger(best, allowed_slots(x, bits, i, lo, hi, lane, own));
  const float most = slot_max(best);
  if (lane == 0) chunk_top[c] = most;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
slots largest = -INFINITY;
for (int i = 0; i < TEXT; i += 32) largest = larger(largest, take_slots(chunk_top + i, lane, 0, TEXT - i, -INFINITY));
const float text_top = slot_max(largest);
for (int i = TEXT; i < ALL; i += 32) largest = larger(largest, take_slots(chunk_top + i, lane, 0, ALL - i, -INFINITY));
const float top = slot_max(largest);
for (int c = sg; c < ALL; c += NSG) {
  const int begin = c < TEXT ? c * SPAN : BASE + (c - TEXT) * SPAN;
  const int lo = c < TEXT ? text_lo : time_lo, last = c < TEXT ? TIMES : time_hi;
  const int hi = begin + SPAN < last ? begin + SPAN : last;
  slots part = 0.0f;
  for (int i = lo > begin ? lo / 32 * 32 : begin; i < hi; i += 32)
    part += exp(allowed_slots(x, bits, i, lo, hi, lane, own) - top);
  const float sum = slot_sum(part);
  if (lane == 0) chunk_sum[c] = sum;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
if (sg == 0) {
  slots text_part = 0.0f, time_part = 0.0f;
  for (int i = 0; i < TEXT; i += 32) text_part += take_slots(chunk_sum + i, lane, 0, TEXT - i, 0.0f);
  for (int i = TEXT; i < ALL; i += 32) time_part += take_slots(chunk_sum + i, lane, 0, ALL - i, 0.0f);
  const float text_sum = slot_sum(text_part), time_sum = slot_sum(time_part);
  const bool outweighed = rule[4] != 0 && text_sum == text_sum && top + log(time_sum) > text_top;
  const float norm = top + log(outweighed ? time_sum : text_sum + time_sum);
  const bool sound = norm > -INFINITY && norm < INFINITY;
  const int first = outweighed ? TEXT : 0;
  slots best;
  slot_ints at;
  best_of_slots(chunk_top + first, ALL - first, lane, best, at);
  for (int r = 0; r < N; r++) {
    float v;
    int i;
    pop_best(chunk_top + first, ALL - first, lane, best, at, v, i);
    if (lane == 0) picked[r] = i == NOWHERE ? NOWHERE : first + i;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  // In the order of their tokens, so that the lowest of equal ones is the first.
  for (int r = lane; r < N; r += SIMD_W) {
    int place = 0;
    for (int s = 0; s < N; s++) place += picked[s] < picked[r] || (picked[s] == picked[r] && s < r) ? 1 : 0;
    ordered[place] = picked[r];
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (int r = 0; r < N; r++) {
    const int c = ordered[r];
    const int begin = c == NOWHERE ? V : c < TEXT ? c * SPAN : BASE + (c - TEXT) * SPAN;
    const int lo = c < TEXT ? text_lo : time_lo, hi = c < TEXT ? TIMES : time_hi;
    for (int j = 0; j < SPAN; j += 32)
      put_slots<float>(candidate + r * SPAN + j, lane,
                       begin + j < hi ? allowed_slots(x, bits, begin + j, lo, hi, lane, own) : slots(-INFINITY));
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  best_of_slots(candidate, N * SPAN, lane, best, at);
  for (int r = 0; r < N; r++) {
    float v;
    int i;
    pop_best(candidate, N * SPAN, lane, best, at, v, i);
    if (lane == 0) {
      const int c = i == NOWHERE ? 0 : ordered[i / SPAN];
      const bool none = !sound || i == NOWHERE;
      o_tokens[row * N + r] = none ? -1 : (c < TEXT ? c * SPAN : BASE + (c - TEXT) * SPAN) + i % SPAN;
      o_scores[row * N + r] = none ? -INFINITY : v - norm;
    }
  }
}
