// A threadgroup takes an utterance; its simdgroups take its hypotheses in turn, the first one then chooses.
// inputs logits[B, K, W (+ D where TIMED)] (labels, blank last, then durations), bonus[B, K, W - 1] (of a label;
// read where FUSED), alphas[B] (read where WEIGHTED), frames[D] (durations), scores[B, K], status[B, K]
// outputs o_gains[3, B, K] (score, the label's own, what was fused in), o_choice[3, B, K] (parent, label, duration),
// o_sound[B]
constexpr int FINISHED = 1, FORCED = 2;  // of a status; 0 runs
constexpr float MOST_BLANK = 0.99f;
constexpr int C = K * R * D;  // candidates: hypothesis, rank of its label, duration
threadgroup float candidate[C];
threadgroup int label_of[K * R];
threadgroup int forced_frames[K];
threadgroup float norm_of[K];
threadgroup float shift_of[K];
threadgroup float end_of[K];
threadgroup int sound[K];
const int b = int(threadgroup_position_in_grid.x);
const int lane = int(thread_index_in_simdgroup);
const int sg = int(simdgroup_index_in_threadgroup);
const int places = scores_shape[0] * K;
const int stride = logits_shape[2];
const int width = TIMED ? stride - D : stride;
const int blank = width - 1;
for (int k = sg; k < K; k += NSG) {
  const int row = b * K + k;
  const float s = scores[row];
  const bool alive = s > -INFINITY;  // not of NaN
  const bool done = status[row] == FINISHED;
  const bool running = alive && !done;
  auto x = logits + row * stride;
  auto y = x + width;
  auto gain = bonus + (FUSED ? row * blank : 0);
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
    for (int d = 0; d < D; d++) {
      const float logit = TIMED ? float(y[d]) : 0.0f;
      if (logit > top_duration) {
        top_duration = logit;
        longest = frames[d];
      }
    }
    float sum = 0.0f;
    for (int d = 0; d < D; d++) sum += exp((TIMED ? float(y[d]) : 0.0f) - top_duration);
    duration_norm = top_duration + log(sum);
  }
  const bool ok = norm > -INFINITY && norm < INFINITY && duration_norm > -INFINITY && duration_norm < INFINITY;
  const bool only_blank = ok && status[row] == FORCED;
  float shift = 0.0f;                            // what fusion gives to every label and blank
  float end = ok ? float(x[blank]) : -INFINITY;  // blank's logit, as it is ranked
  if (WEIGHTED && ok && alphas[b] != 0.0f && !(EARLY && only_blank)) {
    const float nothing = end - norm;
    const float chance = exp(nothing);
    shift = alphas[b] * log(1.0f - (chance < MOST_BLANK ? chance : MOST_BLANK));
    end = (nothing * (1.0f + alphas[b]) - shift) + norm;
  }
  if (FUSED && !EARLY && ok && !only_blank) best_of_sum(x, gain, blank, end, lane, best, at);
  for (int r = 0; r < R; r++) {
    float v = -INFINITY;  // as it is ranked
    int label = NOWHERE;
    if (only_blank) {
      if (r == 0) {
        label = blank;
        v = end;
      }
    } else if (ok && FUSED && !EARLY) {
      pop_best(sum_of(x, gain, blank, end), width, lane, best, at, v, label);
    } else if (ok) {
      pop_best(x, width, lane, best, at, v, label);
      if (FUSED && label != NOWHERE) v = label == blank ? end : v + gain[label];
    }
    const float exact = (v - norm) + shift;
    const float ranked = FIXED ? on_grid(exact) : exact;
    for (int d = lane; d < D; d += SIMD_W) {
      const float duration = only_blank ? top_duration : TIMED ? float(y[d]) : 0.0f;
      const float wait = duration - duration_norm;
      float c = s + (ranked + (FIXED ? on_grid(wait) : wait));
      if (FIXED && c < -255.0f && c > -INFINITY) c = -255.0f;
      if (!ok || label == NOWHERE || (only_blank && d > 0) || !(c > -INFINITY)) c = -INFINITY;
      if (alive && done && r == 0 && d == 0) c = s;
      candidate[(k * R + r) * D + d] = c;
    }
    if (lane == 0) label_of[k * R + r] = ok ? label : -1;
  }
  if (lane == 0) {
    forced_frames[k] = only_blank ? longest : -1;
    norm_of[k] = norm;
    shift_of[k] = shift;
    end_of[k] = end;
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
      if (label == blank && advance < 1) advance = 1;
      o_choice[out] = none ? -1 : parent;
      o_choice[places + out] = label;
      o_choice[2 * places + out] = advance;
      o_gains[out] = none ? -INFINITY : v;
      auto x = logits + (b * K + parent) * stride;
      auto gain = bonus + (FUSED ? (b * K + parent) * blank : 0);
      float own = 0.0f, given = 0.0f;
      if (label >= 0) own = float(x[label]) - norm_of[parent];
      if (FUSED && label >= 0)
        given = (label == blank ? end_of[parent] - float(x[blank]) : gain[label]) + shift_of[parent];
      o_gains[places + out] = own;
      o_gains[2 * places + out] = given;
    }
  }
  if (lane == 0) {
    int all = 1;
    for (int k = 0; k < K; k++) all = sound[k] == 0 ? 0 : all;
    o_sound[b] = all != 0;
  }
}
