// A threadgroup goes back through the frames of an utterance that wfst_search took it through, and keeps the links
// on a way whose cost is within `reach` of the best way's.
// inputs costs[B, T, V], lengths[B], the graph with finals[S] (NEVER: not final), first_token[B, T + 2],
// base[B, T + 1], states[B, room], alphas[B, room] of the search, and knobs (see kernels/search/wfst.py)
// outputs o_report[B, 4] (links there are, the best way's cost as a difference, whether it ends in a final state,
// nothing), o_links[B, most, 3] (frame, arc, how far behind the best way; in no order); the rest is room to work in: two
// hash tables of states with their costs to the end, and the places of a frame's tokens.
constexpr int MOST = 0x7fffffff;
constexpr int NEVER = 0x3fffffff;
constexpr int LANES = SIMD_W * NSG;
constexpr int LINKS = 0, BEST = 1, REACHED = 2, CHANGED = 3;
threadgroup int cell[8];
const int b = int(threadgroup_position_in_grid.x);
const int lane = int(thread_index_in_simdgroup);
const int me = int(simdgroup_index_in_threadgroup) * SIMD_W + lane;
const int frames = costs_shape[1];
const int width = costs_shape[2];
const int length = lengths[b];
const int reach = knobs[0], most = knobs[1], penalty = knobs[2];
const int limit = knobs[3], room = knobs[4], mask = knobs[5], depth = knobs[6];
auto begins = first_token + b * (frames + 2);
auto all_states = states + b * room;
auto all_alphas = alphas + b * room;
device int* links = o_links + b * most * 3;
for (int i = me; i < 2 * (mask + 1); i += LANES) {
  o_keys[b * 2 * (mask + 1) + i] = -1;
  o_betas[b * 2 * (mask + 1) + i] = MOST;
}
for (int i = me; i < 8; i += LANES) group_store(cell + i, i == BEST ? MOST : 0);
threadgroup_barrier(mem_flags::mem_device);
threadgroup_barrier(mem_flags::mem_threadgroup);
// Final costs count where any final state is reached, and nowhere else.
const int ends = begins[length], end_count = begins[length + 1] - ends;
for (int i = me; i < end_count; i += LANES)
  if (finals[all_states[ends + i]] != NEVER) group_store(cell + REACHED, 1);
threadgroup_barrier(mem_flags::mem_threadgroup);
const bool reached = group_load(cell + REACHED) != 0;
for (int i = me; i < end_count; i += LANES) {
  const int left = reached ? finals[all_states[ends + i]] : 0;
  if (left != NEVER) group_lower(cell + BEST, all_alphas[ends + i] + left);
}
threadgroup_barrier(mem_flags::mem_threadgroup);
const int best = group_load(cell + BEST);
for (int f = best == MOST ? -1 : length; f >= 0; f--) {  // the same in every lane
  const int turn = (b * 2 + (f & 1)) * (mask + 1), other = (b * 2 + 1 - (f & 1)) * (mask + 1);
  device int* keys = o_keys + turn;
  device int* betas = o_betas + turn;
  device int* next_keys = o_keys + other;
  device int* next_betas = o_betas + other;
  device int* places = o_places + (b * 2 + (f & 1)) * limit;
  const int begin_token = begins[f], count = begins[f + 1] - begin_token;
  for (int i = me; i < count; i += LANES) {
    const int state = all_states[begin_token + i];
    bool fresh;
    const int place = claim_place(keys, mask, state, fresh);
    places[i] = place;
    const int left = f < length ? MOST : reached ? finals[state] : 0;
    const bool lives = f == length && left != NEVER && all_alphas[begin_token + i] + left - best <= reach;
    betas[place] = lives ? left : MOST;
  }
  threadgroup_barrier(mem_flags::mem_device);
  if (f < length) {
    auto row = costs + (b * frames + f) * width;
    const int step = base[b * (frames + 1) + f + 1];
    for (int from = me - lane; from < count; from += LANES) {
      const int i = from + lane;
      int state = 0, alpha = 0, begin = 0, many = 0, place = 0;
      if (i < count) {
        state = all_states[begin_token + i];
        alpha = all_alphas[begin_token + i];
        place = places[i];
        begin = first[state];
        many = emitting[state];
      }
      const int until = arcs_until(many, lane);
      const int total = simd_shuffle(until, ushort(SIMD_W - 1));
      for (int e0 = 0; e0 < total; e0 += SIMD_W) {
        const int e = e0 + lane;
        const ushort by = ushort(lane_of_arc(until, e));
        const int before = simd_shuffle(until, by) - simd_shuffle(many, by);
        const int arc = simd_shuffle(begin, by) + e - before;
        const int source = simd_shuffle(state, by), paid = simd_shuffle(alpha, by), at = simd_shuffle(place, by);
        if (e < total) {
          const int heard = row[labels[arc] - 1];
          const int target = targets[arc];
          const int slot = find_place(next_keys, mask, target);
          const int left = slot < 0 ? MOST : next_betas[slot];
          if (heard != NEVER && left != MOST) {
            const int go = weights[arc] + heard + (target != source ? penalty : 0) - step + left;
            const int behind = paid + go - best;
            if (behind <= reach) {
              lower_at(betas + at, go);
              const int n = group_add(cell + LINKS, 1);
              if (n < most) {
                links[n * 3] = f;
                links[n * 3 + 1] = arc;
                links[n * 3 + 2] = behind;
              }
            }
          }
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_device);
  }
  // Arcs without a label, in rounds until no cost falls; once more to keep their links.
  bool again = true;
  for (int round = 0; round <= depth && depth > 0; round++) {
    const bool keeps = !again || round == depth;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (me == 0) group_store(cell + CHANGED, 0);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int from = me - lane; from < count; from += LANES) {
      const int i = from + lane;
      int alpha = 0, begin = 0, many = 0, place = 0;
      if (i < count) {
        const int state = all_states[begin_token + i];
        alpha = all_alphas[begin_token + i];
        place = places[i];
        begin = first[state] + emitting[state];
        many = first[state + 1] - begin;
      }
      const int until = arcs_until(many, lane);
      const int total = simd_shuffle(until, ushort(SIMD_W - 1));
      for (int e0 = 0; e0 < total; e0 += SIMD_W) {
        const int e = e0 + lane;
        const ushort by = ushort(lane_of_arc(until, e));
        const int before = simd_shuffle(until, by) - simd_shuffle(many, by);
        const int arc = simd_shuffle(begin, by) + e - before;
        const int paid = simd_shuffle(alpha, by), at = simd_shuffle(place, by);
        if (e < total) {
          const int slot = find_place(keys, mask, targets[arc]);
          const int left = slot < 0 ? MOST : load_at(betas + slot);
          if (left != MOST) {
            const int go = weights[arc] + left;
            const int behind = paid + go - best;
            if (behind <= reach && keeps) {
              const int n = group_add(cell + LINKS, 1);
              if (n < most) {
                links[n * 3] = f;
                links[n * 3 + 1] = arc;
                links[n * 3 + 2] = behind;
              }
            }
            if (behind <= reach && !keeps && go < lower_at(betas + at, go)) group_store(cell + CHANGED, 1);
          }
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_device);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    again = group_load(cell + CHANGED) != 0;
    if (keeps) break;
  }
  if (f < length) {  // the other table is next frame's: empty it for the frame before
    device int* old = o_places + (b * 2 + 1 - (f & 1)) * limit;
    const int old_count = begins[f + 2] - begins[f + 1];
    for (int i = me; i < old_count; i += LANES) next_keys[old[i]] = -1;
  }
  threadgroup_barrier(mem_flags::mem_device);
}
threadgroup_barrier(mem_flags::mem_threadgroup);
if (me == 0) {
  o_report[b * 4] = group_load(cell + LINKS);
  o_report[b * 4 + 1] = best;
  o_report[b * 4 + 2] = reached ? 1 : 0;
  o_report[b * 4 + 3] = 0;
}
