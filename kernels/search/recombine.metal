// A threadgroup of one simdgroup takes an utterance.
// inputs gains[3, B, K], choice[3, B, K] (parent, label, duration), finite[B], slots_before[FIELDS, B, K],
// tokens[B, K, L], common[B, K, K], sound[B], base[B], lengths[B], limits[2] (encoder frames a row, labels a frame)
// outputs o_scores[B, K], o_slots[FIELDS, B, K], o_tokens[B, K, L], o_common[B, K, K], o_sound[B], o_base[B]
constexpr int LABEL = 0, SPOKEN = 1, DURATION = 2, PARENT = 3, FRAME = 4, HELD = 5, COUNT = 6, ORIGIN = 7, ROW = 8,
              STATUS = 9;  // of the slots
constexpr int RUNS = 0, FINISHED = 1, FORCED = 2;  // of a status
threadgroup float score[K];
threadgroup float merged[K];
threadgroup int from[K];
threadgroup int label[K];   // emitted, -1 where none is
threadgroup int place[K];   // the next encoder frame
threadgroup int count[K];   // tokens
threadgroup int reads[K];
threadgroup int keeps[K];   // a state of its own to give away: it lives, runs on and emits nothing
threadgroup int alike[K * K];
const int b = int(threadgroup_position_in_grid.x);
const int lane = int(thread_index_in_simdgroup);
const int fields = gains_shape[1] * K;
const int room = tokens_shape[2];
const int over = lengths[b];
const bool well = sound[b] && finite[b];
if (lane == 0) o_sound[b] = well;
for (int k = lane; k < K; k += SIMD_W) {
  const int out = b * K + k;
  const int chosen = choice[fields + out], waits = choice[2 * fields + out];
  const int parent = choice[out] < 0 ? 0 : choice[out];
  const int before = b * K + parent;
  const int emitted = chosen >= 0 && chosen != BLANK ? chosen : -1;
  const int began = slots_before[FRAME * fields + before];
  const int held = waits > 0 ? 0 : slots_before[HELD * fields + before] + (emitted >= 0 ? 1 : 0);
  from[k] = parent;
  label[k] = emitted;
  place[k] = began + waits;
  count[k] = slots_before[COUNT * fields + before] + (emitted >= 0 ? 1 : 0);
  score[k] = well ? float(gains[out]) : -INFINITY;
  o_slots[LABEL * fields + out] = emitted;
  o_slots[SPOKEN * fields + out] = began;
  o_slots[DURATION * fields + out] = waits;
  o_slots[PARENT * fields + out] = choice[out];
  o_slots[FRAME * fields + out] = place[k];
  o_slots[HELD * fields + out] = held;
  o_slots[COUNT * fields + out] = count[k];
  o_slots[STATUS * fields + out] = place[k] >= over ? FINISHED : held >= limits[1] ? FORCED : RUNS;
  const int last = over > 0 ? over - 1 : 0;
  o_slots[ROW * fields + out] = b * limits[0] + (place[k] < last ? place[k] : last);
}
threadgroup_barrier(mem_flags::mem_threadgroup);
for (int i = lane; i < K * room; i += SIMD_W) {
  const int k = i / room, at = i % room;
  const bool added = label[k] >= 0 && at == count[k] - 1;
  o_tokens[b * K * room + i] = added ? label[k] : tokens[(b * K + from[k]) * room + at];
}
for (int i = lane; i < K * K; i += SIMD_W) {
  const int one = i / K, other = i % K;
  const int common_before = common[(b * K + from[one]) * K + from[other]];
  // What follows the common prefix: in the tokens so far, or the label behind their end.
  const int length_one = count[one] - (label[one] >= 0 ? 1 : 0), length_other = count[other] - (label[other] >= 0 ? 1 : 0);
  const int next = common_before < length_one ? tokens[(b * K + from[one]) * room + common_before] : label[one];
  const int its = common_before < length_other ? tokens[(b * K + from[other]) * room + common_before] : label[other];
  const int shared = common_before + (next >= 0 && next == its ? 1 : 0);
  o_common[b * K * K + i] = shared;
  alike[i] = shared == count[one] && shared == count[other] ? 1 : 0;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
for (int k = lane; k < K; k += SIMD_W) {
  const float own = score[k];
  bool wins = own > -INFINITY;
  int crowd = 0;
  float sum = 0.0f;
  for (int o = 0; o < K; o++) {
    const float other = score[o];
    if (own > -INFINITY && other > -INFINITY && alike[k * K + o] != 0 && (!TIMED || place[o] == place[k])) {
      if (other > own || (other == own && o < k)) wins = false;
      sum += exp(other - own);
      crowd++;
    }
  }
  const float both = crowd > 1 ? own + log(sum) : own;
  merged[k] = !wins ? -INFINITY : FIXED ? on_grid(both) : both;
  const bool runs = wins && place[k] < over;
  reads[k] = runs && label[k] >= 0 ? 1 : 0;
  keeps[k] = runs && label[k] < 0 ? 1 : 0;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
// In fixed point scores are differences to the best of them, which goes to the base.
float top = -INFINITY;
for (int k = 0; k < K; k++) top = merged[k] > top ? merged[k] : top;
if (!FIXED || !(top > -INFINITY && top < INFINITY)) top = 0.0f;
if (lane == 0) {
  const int most = 0x7fffffff, was = base[b], more = int(top * 65536.0f);
  o_base[b] = more > 0 && was > most - more ? most : more < 0 && was < -most - more ? -most : was + more;
}
for (int k = lane; k < K; k += SIMD_W) {
  int origin = from[k];
  if (reads[k] != 0) {
    origin = K + k;
    for (int o = K - 1; o >= 0; o--)
      if (alike[k * K + o] != 0 && reads[o] != 0) origin = K + o;
    for (int o = K - 1; o >= 0; o--)
      if (alike[k * K + o] != 0 && keeps[o] != 0) origin = from[o];
  }
  const float behind = merged[k] - top;
  o_scores[b * K + k] = FIXED && behind < -255.0f && merged[k] > -INFINITY ? -255.0f : behind;
  o_slots[ORIGIN * fields + b * K + k] = origin;
}
