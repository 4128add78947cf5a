// A threadgroup takes an utterance; its simdgroups take its hypotheses in turn, the first one then chooses.
// inputs labels[B, K, W] (logits, blank last), spread[B, K, D] (duration logits), frames[D] (durations),
// scores[B, K], finished[B, K], forced[B, K]
// outputs o_scores[B, K], o_parents[B, K], o_labels[B, K], o_frames[B, K], o_label_scores[B, K], o_sound[B]
constexpr int C = K * R * D;  // candidates: hypothesis, rank of its label, duration
threadgroup float candidate[C];
threadgroup int label_of[K * R];
threadgroup float score_of[K * R];
threadgroup int forced_frames[K];
threadgroup int sound[K];
const int b = int(threadgroup_position_in_grid.x);
const int lane = int(thread_index_in_simdgroup);
const int sg = int(simdgroup_index_in_threadgroup);
const int width = labels_shape[2];
for (int k = sg; k < K; k += NSG) {
  const int row = b * K + k;
  const float s = scores[row];
  const bool alive = s > -INFINITY;  // not of NaN
  const bool done = finished[row];
  const bool running = alive && !done;
  auto x = labels + row * width;
  auto y = spread + row * D;
  slots best;
  slot_ints at;
  float norm = NAN, duration_norm = NAN, top_duration = -INFINITY;
  int longest = 0;  // the duration of the best logit, the first of equal ones
  if (running) {  // the same in every lane
    best_of_slots(x, width, lane, best, at);
    const float top = slot_max(best);
    slots part = 0.0f;
    const int full = width / 32 * 32;
    for (int i = 0; i < full; i += 32) part += exp(take_slots(x + i, lane) - top);
    if (full < width) part += exp(take_slots(x + full, lane, 0, width - full, -INFINITY) - top);
    norm = top + log(slot_sum(part));
    for (int d = 0; d < D; d++)
      if (float(y[d]) > top_duration) {
        top_duration = float(y[d]);
        longest = frames[d];
      }
    float sum = 0.0f;
    for (int d = 0; d < D; d++) sum += exp(float(y[d]) - top_duration);
    duration_norm = top_duration + log(sum);
  }
  const bool ok = norm > -INFINITY && norm < INFINITY && duration_norm > -INFINITY && duration_norm < INFINITY;
  const bool only_blank = ok && forced[row];
  for (int r = 0; r < R; r++) {
    float v = -INFINITY;
    int label = NOWHERE;
    if (only_blank) {
      if (r == 0) {
        v = float(x[width - 1]);
        label = width - 1;
      }
    } else if (ok) {
      pop_best(x, width, lane, best, at, v, label);
    }
    for (int d = lane; d < D; d += SIMD_W) {
      const float duration = only_blank ? top_duration : float(y[d]);
      float c = s + ((v - norm) + (duration - duration_norm));
      if (!ok || label == NOWHERE || (only_blank && d > 0) || !(c > -INFINITY)) c = -INFINITY;
      if (alive && done && r == 0 && d == 0) c = s;
      candidate[(k * R + r) * D + d] = c;
    }
    if (lane == 0) {
      label_of[k * R + r] = ok ? label : -1;
      score_of[k * R + r] = v - norm;
    }
  }
  if (lane == 0) {
    forced_frames[k] = only_blank ? longest : -1;
    sound[k] = ok || !running ? 1 : 0;
  }
}
threadgroup_barrier(mem_flags::mem_threadgroup);
if (sg == 0) {
  slots best;
  slot_ints at;
  best_of_slots(candidate, C, lane, best, at);
  for (int r = 0; r < K; r++) {
    float v;
    int i;
    pop_best(candidate, C, lane, best, at, v, i);
    if (lane == 0) {
      const int out = b * K + r;
      const bool none = i == NOWHERE;
      const int pair = none ? 0 : i / D;
      const int parent = pair / R;
      const int label = none ? -1 : label_of[pair];
      int advance = label < 0 ? 0 : forced_frames[parent] < 0 ? frames[i % D] : forced_frames[parent];
      if (label == width - 1 && advance < 1) advance = 1;
      o_scores[out] = none ? -INFINITY : v;
      o_parents[out] = none ? -1 : parent;
      o_labels[out] = label;
      o_frames[out] = advance;
      o_label_scores[out] = label < 0 ? 0.0f : score_of[pair];
    }
  }
  if (lane == 0) {
    int all = 1;
    for (int k = 0; k < K; k++) all = sound[k] == 0 ? 0 : all;
    o_sound[b] = all != 0;
  }
}
