// A threadgroup of one simdgroup takes an utterance through all its frames.
// inputs log_probs[B, T, W] (blank last), lengths[B], knobs[2] (bonus a label, threshold)
// outputs of each frame, [B, T, K]: o_labels (emitted, -1 where none), o_parents (slot continued), o_nodes (the node
// before the emitted one, -1 at the root), o_last (the frame's label), o_emissions (the emitted label's log-probability),
// o_gained, o_scores (before and after recombination); o_ends[B, K], o_end_nodes[B, K], o_sound[B]; o_base[B, T],
// the best's score in 65536ths where FIXED: there the scores above are differences to it.
// Node t * K + k is what slot k emitted at frame t.
constexpr int MOST = 0x7fffffff;
constexpr int C = K * (R + 2);  // candidates of a slot: its last label again, the R best labels, blank
threadgroup float candidate[C];
threadgroup float listed[R];
threadgroup int listed_label[R];
threadgroup float score[K];
threadgroup int last[K];
threadgroup int node[K];
threadgroup int tokens[K];
threadgroup float next_score[K];
threadgroup int next_last[K];
threadgroup int next_node[K];
threadgroup int next_tokens[K];
threadgroup int from[K];
threadgroup int emitted[K];
// Of each pair of slots the length of the common prefix, and the token with which the first goes on from there
// (-1 where it ends); two of each, read and written in turn.
threadgroup int common[2 * K * K];
threadgroup int onward[2 * K * K];
const int b = int(threadgroup_position_in_grid.x);
const int lane = int(thread_index_in_simdgroup);
const int frames = log_probs_shape[1];
const int width = log_probs_shape[2];
const int blank = width - 1;
const int over = lengths[b];
const float beta = knobs[0];
const float threshold = knobs[1];
for (int k = lane; k < K; k += SIMD_W) {
  score[k] = k == 0 ? 0.0f : -INFINITY;
  last[k] = -1;
  node[k] = -1;
  tokens[k] = 0;
}
for (int e = lane; e < K * K; e += SIMD_W) {
  common[e] = 0;
  onward[e] = -1;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
bool sound = true;
int turn = 0;  // which of the two is read
int base = 0;
int t = 0;
for (; t < over && sound; t++) {  // the same in every lane
  auto x = log_probs + (b * frames + t) * width;
  const int row = (b * frames + t) * K;
  const float rest = float(x[blank]);
  slots best = -INFINITY;
  slot_ints at = NOWHERE;
  slots sum = 0.0f;
  const int full = blank / 32 * 32;
  for (int i = 0; i < full; i += 32) {
    const slots v = take_slots(x + i, lane);
    keep_larger(best, at, v, i);
    sum += v;
  }
  if (full < blank) {
    keep_larger(best, at, take_slots(x + full, lane, 0, blank - full, -INFINITY), full);
    sum += take_slots(x + full, lane, 0, blank - full, 0.0f);
  }
  const float most = slot_max(best);
  const float top = rest > most ? rest : most;
  const float all = slot_sum(sum) + rest;  // NaN where one of them is
  sound = top > -INFINITY && top < INFINITY && all == all;
  for (int r = 0; r < R; r++) {
    float v = -INFINITY;
    int label = NOWHERE;
    if (sound) pop_best(x, blank, lane, best, at, v, label);
    if (lane == 0) {
      listed[r] = v;
      listed_label[r] = label == NOWHERE ? -1 : label;
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int c = lane; c < C; c += SIMD_W) {
    const int k = c / (R + 2), j = c - k * (R + 2);
    const float s = score[k];
    const int again = last[k] < blank ? last[k] : -1;
    float v = -INFINITY;
    if (sound && s > -INFINITY) {
      if (j == 0) {
        if (again >= 0) v = s + float(x[again]);
      } else if (j == R + 1) {
        v = s + rest;
      } else if (listed_label[j - 1] >= 0 && listed_label[j - 1] != again) {
        v = (s + listed[j - 1]) + beta;
      }
    }
    candidate[c] = v > -INFINITY ? v : -INFINITY;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  best_of_slots(candidate, C, lane, best, at);
  float first = -INFINITY;
  for (int r = 0; r < K; r++) {
    float v;
    int i;
    pop_best(candidate, C, lane, best, at, v, i);
    if (r == 0) {
      first = v;
      const int step = FIXED && first > -INFINITY ? int(first * 65536.0f) : 0;
      base = base > 0 && step > MOST - base ? MOST : base < 0 && step < -MOST - base ? -MOST : base + step;
    }
    if (lane == 0) {
      const bool none = i == NOWHERE || !(v > first - threshold);
      const int parent = none ? 0 : i / (R + 2);
      const int j = none ? R + 1 : i - parent * (R + 2);
      const bool emits = j > 0 && j <= R;
      const int label = j == 0 ? last[parent] : j > R ? blank : listed_label[j - 1];
      from[r] = parent;
      emitted[r] = emits ? label : -1;
      next_score[r] = none ? -INFINITY : FIXED ? v - first : v;
      next_last[r] = label;
      next_node[r] = emits ? t * K + r : node[parent];
      next_tokens[r] = tokens[parent] + (emits ? 1 : 0);
      o_labels[row + r] = emits ? label : -1;
      o_parents[row + r] = parent;
      o_nodes[row + r] = emits ? node[parent] : -1;
      o_last[row + r] = label;
      o_emissions[row + r] = emits ? float(x[label]) : 0.0f;
      o_gained[row + r] = next_score[r];
    }
  }
  if (lane == 0) o_base[b * frames + t] = base;
  threadgroup_barrier(mem_flags::mem_device);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const int old = turn * K * K, fresh = (1 - turn) * K * K;
  for (int e = lane; e < K * K; e += SIMD_W) {
    const int i = e / K, o = e - i * K;
    const int p = from[i], q = from[o];
    int shared = common[old + p * K + q];
    const int own = onward[old + p * K + q] >= 0 ? onward[old + p * K + q] : emitted[i];
    const int other = onward[old + q * K + p] >= 0 ? onward[old + q * K + p] : emitted[o];
    int next = own;
    if (own >= 0 && own == other) {
      shared += 1;
      next = -1;
      if (next_tokens[i] > shared) {
        int at_node = next_node[i];
        for (int depth = next_tokens[i]; depth > shared + 1; depth--)
          at_node = o_nodes[b * frames * K + at_node];
        next = o_labels[b * frames * K + at_node];
      }
    }
    common[fresh + e] = shared;
    onward[fresh + e] = next;
  }
  turn = 1 - turn;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int k = lane; k < K; k += SIMD_W) {
    bool wins = next_score[k] > -INFINITY;
    for (int o = 0; o < k && wins; o++)  // best first, so the first of equals stays
      if (next_score[o] > -INFINITY && next_last[o] == next_last[k] && next_tokens[o] == next_tokens[k] &&
          common[fresh + o * K + k] == next_tokens[k])
        wins = false;
    score[k] = wins ? next_score[k] : -INFINITY;
    last[k] = next_last[k];
    node[k] = next_node[k];
    tokens[k] = next_tokens[k];
    o_scores[row + k] = wins ? next_score[k] : -INFINITY;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
for (int e = t * K + lane; e < frames * K; e += SIMD_W) {
  const int out = b * frames * K + e, k = e - e / K * K;
  o_labels[out] = -1;
  o_parents[out] = k;
  o_nodes[out] = -1;
  o_last[out] = last[k];
  o_emissions[out] = 0.0f;
  o_gained[out] = score[k];
  o_scores[out] = score[k];
}
for (int f = t + lane; f < frames; f += SIMD_W) o_base[b * frames + f] = base;
for (int k = lane; k < K; k += SIMD_W) {
  o_ends[b * K + k] = score[k];
  o_end_nodes[b * K + k] = node[k];
}
if (lane == 0) o_sound[b] = sound;
