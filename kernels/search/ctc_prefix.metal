// A threadgroup of one simdgroup takes an utterance through all its frames.
// inputs log_probs[B, T, W] (blank last), lengths[B], beta[1], starts[B, G], which[B, G], alphas[B, G] (of the G graphs
// of an utterance, read where GRAPHS), count[S], first[S], fallback[S], penalty[S], labels[M], weights[M], targets[M],
// roots[N, V], root_targets[N, V]
// outputs of each frame, [B, T, K]: o_labels (the token a slot's prefix grew by, -1 where it did not), o_nodes (the node
// of the token before it), o_before (the time before the time of a slot's last token, where that was set in the frame),
// o_emissions (that token's log-probability there); o_base, o_added[B, T], by how much the best's sum and what is fused
// moved; o_ends[B, K] (differences to their totals), o_fused[B, K], o_end_nodes, o_end_times[B, K], o_states[B, K, G],
// o_sound[B]. Node t * K + k is slot k's at frame t, among tokens and among times.
// A slot's prefix is scored by two sums, over the alignments that end in blank and in its last token, and each has its
// best alignment beside it: a score and a chain of times.
constexpr int C = K * (R + 1);  // continuations of a slot: as it is, then by each listed label
threadgroup float candidate[C];
threadgroup float extra[K * R];
threadgroup float listed[R];
threadgroup int listed_label[R];
threadgroup float blank_sum[K];
threadgroup float token_sum[K];
threadgroup float blank_best[K];
threadgroup float token_best[K];
threadgroup float all[K];
threadgroup float fused[K];
threadgroup int last[K];
threadgroup int tokens[K];
threadgroup int node[K];
threadgroup int blank_time[K];
threadgroup int token_time[K];
threadgroup int parent[K];
threadgroup int state[K * G];
threadgroup float next_blank_sum[K];
threadgroup float next_token_sum[K];
threadgroup float next_blank_best[K];
threadgroup float next_token_best[K];
threadgroup float next_fused[K];
threadgroup int next_last[K];
threadgroup int next_tokens[K];
threadgroup int next_node[K];
threadgroup int next_blank_time[K];
threadgroup int next_token_time[K];
threadgroup int next_state[K * G];
threadgroup int chosen[K];
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
const int vocabulary = roots_shape[1];
const int blank = width - 1;
const int over = lengths[b];
const int first_node = b * frames * K;
for (int k = lane; k < K; k += SIMD_W) {
  blank_sum[k] = blank_best[k] = all[k] = k == 0 ? 0.0f : -INFINITY;
  token_sum[k] = token_best[k] = -INFINITY;
  fused[k] = 0.0f;
  last[k] = node[k] = blank_time[k] = token_time[k] = -1;
  tokens[k] = 0;
  for (int g = 0; g < G; g++) state[k * G + g] = GRAPHS ? starts[b * G + g] : 0;
}
for (int e = lane; e < K * K; e += SIMD_W) {
  common[e] = 0;
  onward[e] = -1;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
bool sound = true;
int turn = 0;  // which of the two is read
int t = 0;
for (; t < over; t++) {  // the same in every lane
  auto x = log_probs + (b * frames + t) * width;
  const int row = first_node + t * K;
  const int old = turn * K * K, fresh = (1 - turn) * K * K;
  slots best = -INFINITY;
  slot_ints at = NOWHERE;
  slots sum = 0.0f;
  const int full = width / 32 * 32;
  for (int i = 0; i < full; i += 32) {
    const slots v = take_slots(x + i, lane);
    keep_larger(best, at, v, i);
    sum += v;
  }
  if (full < width) {
    keep_larger(best, at, take_slots(x + full, lane, 0, width - full, -INFINITY), full);
    sum += take_slots(x + full, lane, 0, width - full, 0.0f);
  }
  const float top = slot_max(best);
  const float total = slot_sum(sum);  // NaN where one of them is
  sound = top > -INFINITY && top < INFINITY && total == total;
  if (!sound) break;
  for (int r = 0; r < R; r++) {
    float v;
    int label;
    pop_best(x, width, lane, best, at, v, label);
    if (lane == 0) {
      listed[r] = label == NOWHERE ? -INFINITY : v;
      listed_label[r] = label == NOWHERE ? -1 : label;
    }
  }
  for (int q = lane; q < K; q += SIMD_W) {
    parent[q] = -1;
    for (int p = 0; p < K; p++)
      if (all[q] > -INFINITY && all[p] > -INFINITY && tokens[p] + 1 == tokens[q] && common[old + q * K + p] == tokens[p])
        parent[q] = p;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float rest = -INFINITY;  // blank's, where it is listed
  for (int r = 0; r < R; r++)
    if (listed_label[r] == blank) rest = listed[r];
  for (int c = lane; c < C; c += SIMD_W) {
    const int k = c / (R + 1), j = c - k * (R + 1);
    float total = -INFINITY;
    if (j == 0) {
      float again = -INFINITY;
      for (int r = 0; r < R; r++)
        if (last[k] >= 0 && listed_label[r] == last[k]) again = listed[r];
      const int p = parent[k];
      const float grown = p < 0 ? -INFINITY : last[p] == last[k] ? blank_sum[p] : all[p];
      total = log_add(all[k] + rest, log_add(token_sum[k] + again, grown + again, FIXED), FIXED) + fused[k];
    } else {
      const int label = listed_label[j - 1];
      const float behind = label == last[k] ? blank_sum[k] : all[k];
      if (label >= 0 && label != blank && behind > -INFINITY) {
        float added = 0.0f;
        for (int g = 0; GRAPHS && g < G; g++) {
          float gain;
          graph_step(count, first, fallback, penalty, labels, weights, targets, roots, root_targets,
                     which[b * G + g] * vocabulary, state[k * G + g], label, gain);
          added = gain * alphas[b * G + g] + added;
        }
        const float more = (FIXED ? on_grid(added) : added) + beta[0];
        extra[k * R + j - 1] = more;
        total = (behind + listed[j - 1]) + (fused[k] + more);
      }
    }
    candidate[c] = total > -INFINITY ? total : -INFINITY;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int q = lane; q < K; q += SIMD_W)  // what another slot's prefix is already is no continuation
    for (int r = 0; r < R; r++)
      if (parent[q] >= 0 && listed_label[r] == last[q]) candidate[parent[q] * (R + 1) + r + 1] = -INFINITY;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  best_of_slots(candidate, C, lane, best, at);
  for (int r = 0; r < K; r++) {
    float v;
    int i;
    pop_best(candidate, C, lane, best, at, v, i);
    if (lane == 0) chosen[r] = i;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int r = lane; r < K; r += SIMD_W) {
    const bool none = chosen[r] == NOWHERE;
    const int k = none ? 0 : chosen[r] / (R + 1);
    const int j = none ? 0 : chosen[r] - k * (R + 1);
    const bool in_blank = blank_best[k] > token_best[k];
    const float most = in_blank ? blank_best[k] : token_best[k];
    const int when = in_blank ? blank_time[k] : token_time[k];
    float sum_in_blank = -INFINITY, sum_in_token = -INFINITY, best_in_blank = -INFINITY, best_in_token = -INFINITY;
    int before = -1;
    bool timed = false;
    float emission = -INFINITY;
    if (j > 0) {
      const bool twice = listed_label[j - 1] == last[k];
      emission = listed[j - 1];
      sum_in_token = (twice ? blank_sum[k] : all[k]) + emission;
      best_in_token = (twice ? blank_best[k] : most) + emission;
      before = twice ? blank_time[k] : when;
      timed = true;
    } else if (!none) {
      for (int i = 0; i < R; i++)
        if (last[k] >= 0 && listed_label[i] == last[k]) emission = listed[i];
      const int p = parent[k];
      const bool twice = p >= 0 && last[p] == last[k];
      const float grown = p < 0 ? -INFINITY : twice ? blank_sum[p] : all[p];
      const float grown_most = p < 0                                     ? -INFINITY
                               : twice || blank_best[p] > token_best[p] ? blank_best[p]
                                                                         : token_best[p];
      const int grown_when =
          p < 0 ? -1 : twice || blank_best[p] > token_best[p] ? blank_time[p] : token_time[p];
      sum_in_blank = all[k] + rest;
      best_in_blank = most + rest;
      sum_in_token = log_add(token_sum[k] + emission, grown + emission, FIXED);
      const float stays = token_best[k] + emission, grows = grown_most + emission;
      best_in_token = stays > grows ? stays : grows;
      timed = best_in_token > -INFINITY;
      // The slot that comes first sets a time; one that comes behind changes it where it grows, not where it stays.
      const bool takes_grown = p > k ? grows > stays : grows > -INFINITY;
      if (timed) before = takes_grown ? grown_when : o_before[first_node + token_time[k]];
    }
    next_blank_sum[r] = sum_in_blank;
    next_token_sum[r] = sum_in_token;
    next_blank_best[r] = best_in_blank;
    next_token_best[r] = best_in_token;
    next_blank_time[r] = best_in_blank > -INFINITY ? when : -1;
    next_token_time[r] = timed ? t * K + r : -1;
    next_fused[r] = j > 0 ? fused[k] + extra[k * R + j - 1] : fused[k];
    const int label = j > 0 ? listed_label[j - 1] : -1;
    next_last[r] = j > 0 ? label : last[k];
    next_tokens[r] = tokens[k] + (j > 0 ? 1 : 0);
    next_node[r] = j > 0 ? t * K + r : node[k];
    for (int g = 0; g < G; g++) {
      int reached = state[k * G + g];
      float gain;
      if (GRAPHS && j > 0)
        reached = graph_step(count, first, fallback, penalty, labels, weights, targets, roots, root_targets,
                             which[b * G + g] * vocabulary, reached, label, gain);
      next_state[r * G + g] = reached;
    }
    from[r] = k;
    emitted[r] = label;
    o_labels[row + r] = label;
    o_nodes[row + r] = j > 0 ? node[k] : -1;
    o_before[row + r] = timed ? before : -1;
    o_emissions[row + r] = timed ? emission : 0.0f;
  }
  threadgroup_barrier(mem_flags::mem_device);
  threadgroup_barrier(mem_flags::mem_threadgroup);
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
        for (int depth = next_tokens[i]; depth > shared + 1; depth--) at_node = o_nodes[first_node + at_node];
        next = o_labels[first_node + at_node];
      }
    }
    common[fresh + e] = shared;
    onward[fresh + e] = next;
  }
  turn = 1 - turn;
  const float moved = log_add(next_blank_sum[0], next_token_sum[0], FIXED);
  const float less = moved > -INFINITY ? moved : 0.0f;
  const float added = moved > -INFINITY ? next_fused[0] : 0.0f;
  for (int k = lane; k < K; k += SIMD_W) {
    blank_sum[k] = held(next_blank_sum[k] - less, FIXED);
    token_sum[k] = held(next_token_sum[k] - less, FIXED);
    blank_best[k] = held(next_blank_best[k] - less, FIXED);
    token_best[k] = held(next_token_best[k] - less, FIXED);
    all[k] = log_add(blank_sum[k], token_sum[k], FIXED);
    last[k] = next_last[k];
    tokens[k] = next_tokens[k];
    node[k] = next_node[k];
    blank_time[k] = next_blank_time[k];
    token_time[k] = next_token_time[k];
    for (int g = 0; g < G; g++) state[k * G + g] = next_state[k * G + g];
  }
  for (int k = lane; k < K; k += SIMD_W) fused[k] = next_fused[k] - added;
  if (lane == 0) {
    o_base[b * frames + t] = less;
    o_added[b * frames + t] = added;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
for (int e = t * K + lane; e < frames * K; e += SIMD_W) {
  o_labels[first_node + e] = o_nodes[first_node + e] = o_before[first_node + e] = -1;
  o_emissions[first_node + e] = 0.0f;
}
for (int f = t + lane; f < frames; f += SIMD_W) o_base[b * frames + f] = o_added[b * frames + f] = 0.0f;
for (int k = lane; k < K; k += SIMD_W) {
  o_ends[b * K + k] = all[k] > -INFINITY ? all[k] + fused[k] : -INFINITY;
  o_fused[b * K + k] = fused[k];
  o_end_nodes[b * K + k] = node[k];
  o_end_times[b * K + k] = blank_best[k] > token_best[k] ? blank_time[k] : token_time[k];
  for (int g = 0; g < G; g++) o_states[(b * K + k) * G + g] = state[k * G + g];
}
if (lane == 0) o_sound[b] = sound;
