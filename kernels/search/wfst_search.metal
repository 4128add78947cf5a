// A threadgroup takes an utterance through all its frames. Frame f stands behind f log-probabilities; a token is a
// state that is reached there, at the least cost of all ways.
// inputs costs[B, T, V] (of label v + 1; NEVER where it cannot be), lengths[B], the graph: first[S + 1], emitting[S],
// labels[M], targets[M], weights[M], and knobs (see kernels/search/wfst.py)
// outputs o_first[B, T + 2] (where a frame's tokens begin), o_base[B, T + 1] (what costs of a frame are differences
// to, each a difference to the frame before), o_states[B, room], o_costs[B, room], o_report[B, 4]; the rest is room to
// work in: a hash table of states, who is in it, and states whose cost fell.
constexpr int MOST = 0x7fffffff;
constexpr int NEVER = 0x3fffffff;
constexpr int LANES = SIMD_W * NSG;
constexpr int HELD = 0, BOUND = 1, KEPT = 2, LEAST = 3, OVER = 4, BIN = 5, BELOW = 6, QUEUED = 8;
threadgroup int cell[16];
threadgroup int bins[256];
const int b = int(threadgroup_position_in_grid.x);
const int lane = int(thread_index_in_simdgroup);
const int me = int(simdgroup_index_in_threadgroup) * SIMD_W + lane;
const int frames = costs_shape[1];
const int width = costs_shape[2];
const int length = lengths[b];
const int start = knobs[0], beam = knobs[1], most_active = knobs[2], penalty = knobs[3];
const int limit = knobs[4], room = knobs[5], mask = knobs[6], depth = knobs[7];
device int* keys = o_keys + b * (mask + 1);
device int* totals = o_totals + b * (mask + 1);
device int* marks = o_marks + b * (mask + 1);
device int* held = o_held + b * limit;
device int* queues = o_queues + b * 2 * limit;
device int* states = o_states + b * room;
device int* kept_costs = o_costs + b * room;
for (int i = me; i <= mask; i += LANES) {
  keys[i] = -1;
  totals[i] = MOST;
  marks[i] = -1;
}
threadgroup_barrier(mem_flags::mem_device);
int offset = 0, active = 0, least = 0;  // of the frame before
int status = 0, narrowed = 0, widest = 0;
int f = 0;
for (; f <= length && status == 0; f++) {  // the same in every lane
  auto row = costs + (b * frames + (f > 0 ? f - 1 : 0)) * width;
  int cutoff = least + beam;
  if (f > 0 && active > most_active) {  // the cost of the token that is the first too many, byte by byte
    int pivot = 0, rank = most_active;
    for (int shift = 24; shift >= 0; shift -= 8) {
      for (int i = me; i < 256; i += LANES) group_store(bins + i, 0);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (int i = me; i < active; i += LANES) {
        const int d = kept_costs[offset + i] - least;
        if (shift == 24 || d >> (shift + 8) == pivot >> (shift + 8)) group_add(bins + ((d >> shift) & 255), 1);
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (me == 0) {
        int bin = 0, below = 0;
        while (below + group_load(bins + bin) <= rank) below += group_load(bins + bin++);
        group_store(cell + BIN, bin);
        group_store(cell + BELOW, below);
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      pivot |= group_load(cell + BIN) << shift;
      rank -= group_load(cell + BELOW);
    }
    cutoff = cutoff < least + pivot ? cutoff : least + pivot;
  }
  int reach = beam;    // less where more states than `limit` are within the beam
  bool exact = false;  // whether the best cost is known before states are taken in
  int edge = 0;
  for (;;) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = me; i < 16; i += LANES) group_store(cell + i, 0);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (me == 0) {
      group_store(cell + BOUND, f == 0 ? 0 : MOST);
      group_store(cell + LEAST, MOST);
      if (f == 0) {
        bool fresh;
        const int place = claim_place(keys, mask, start, fresh);
        lower_at(totals + place, 0);
        held[0] = place;
        group_store(cell + HELD, 1);
      }
    }
    threadgroup_barrier(mem_flags::mem_device);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // First the arcs of the best tokens, for a bound; where that was not enough, those of all.
    for (int pass = 0; pass < 2 && f > 0; pass++) {
      const int tried = pass == 0 && !exact ? least : cutoff;
      for (int from = me - lane; from < active; from += LANES) {
        const int i = from + lane;
        int state = 0, cost = 0, begin = 0, many = 0;
        if (i < active) {
          cost = kept_costs[offset + i];
          if (cost <= tried) {
            state = states[offset + i];
            begin = first[state];
            many = emitting[state];
          }
        }
        const int until = arcs_until(many, lane);
        const int total = simd_shuffle(until, ushort(SIMD_W - 1));
        for (int e0 = 0; e0 < total; e0 += SIMD_W) {
          const int e = e0 + lane;
          const int owner = lane_of_arc(until, e);
          const ushort by = ushort(owner);
          const int before = simd_shuffle(until, by) - simd_shuffle(many, by);
          const int arc = simd_shuffle(begin, by) + e - before;
          const int source = simd_shuffle(state, by), paid = simd_shuffle(cost, by);
          if (e < total) {
            const int heard = row[labels[arc] - 1];
            const int target = targets[arc];
            const int c = paid + weights[arc] + heard + (target != source ? penalty : 0);
            const int bound = group_load(cell + BOUND);
            if (heard != NEVER && c < bound) group_lower(cell + BOUND, c);
            const bool fits = heard != NEVER && c - (c < bound ? c : bound) < reach;
            if (pass == 1 && fits && group_load(cell + OVER) == 0) {
              bool fresh;
              const int place = claim_place(keys, mask, target, fresh);
              lower_at(totals + place, c);
              if (fresh) {
                const int at = group_add(cell + HELD, 1);
                if (at < limit)
                  held[at] = place;
                else
                  group_store(cell + OVER, 1);
              }
            }
          }
        }
      }
      threadgroup_barrier(mem_flags::mem_device);
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    const int bound = group_load(cell + BOUND);
    edge = bound == MOST ? MOST : bound + reach;
    // Arcs without a label, in rounds, from every state whose cost fell in the round before.
    int waiting = group_load(cell + HELD);
    for (int round = 0; round < depth && waiting > 0 && group_load(cell + OVER) == 0; round++) {
      device int* queue = round == 0 ? held : queues + (round & 1) * limit;
      device int* next_queue = queues + ((round + 1) & 1) * limit;
      threadgroup int* queued = cell + QUEUED + ((round + 1) & 1);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (me == 0) group_store(queued, 0);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (int from = me - lane; from < waiting; from += LANES) {
        const int i = from + lane;
        int cost = 0, begin = 0, many = 0;
        if (i < waiting) {
          const int place = queue[i];
          cost = load_at(totals + place);
          if (cost < edge) {
            const int state = load_at(keys + place);
            begin = first[state] + emitting[state];
            many = first[state + 1] - begin;
          }
        }
        const int until = arcs_until(many, lane);
        const int total = simd_shuffle(until, ushort(SIMD_W - 1));
        for (int e0 = 0; e0 < total; e0 += SIMD_W) {
          const int e = e0 + lane;
          const ushort by = ushort(lane_of_arc(until, e));
          const int before = simd_shuffle(until, by) - simd_shuffle(many, by);
          const int arc = simd_shuffle(begin, by) + e - before;
          const int c = simd_shuffle(cost, by) + (e < total ? weights[arc] : 0);
          if (e < total && c < edge && group_load(cell + OVER) == 0) {
            bool fresh;
            const int place = claim_place(keys, mask, targets[arc], fresh);
            if (fresh) {
              const int at = group_add(cell + HELD, 1);
              if (at < limit)
                held[at] = place;
              else
                group_store(cell + OVER, 1);
            }
            if (c < lower_at(totals + place, c) && swap_at(marks + place, round) != round) {
              const int at = group_add(queued, 1);
              if (at < limit) next_queue[at] = place;
            }
          }
        }
      }
      threadgroup_barrier(mem_flags::mem_device);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      waiting = group_load(queued);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (group_load(cell + OVER) == 0) break;
    // Too many: once more with the best cost known beforehand, then within half of the beam.
    for (int i = me; i <= mask; i += LANES) {
      keys[i] = -1;
      totals[i] = MOST;
      marks[i] = -1;
    }
    threadgroup_barrier(mem_flags::mem_device);
    if (reach == 1) break;  // as many states are equally good, and none of them is kept
    if (exact || f == 0) {
      reach = reach / 2;
      narrowed++;
    }
    exact = true;
  }
  const int base = group_load(cell + BOUND);
  const int count = group_load(cell + HELD);
  offset += active;
  for (int i = me; i < count; i += LANES) {
    const int place = held[i];
    const int c = totals[place];
    if (c < edge) {
      const int at = offset + group_add(cell + KEPT, 1);
      if (at < room) {
        states[at] = keys[place];
        kept_costs[at] = c - base;
      }
      group_lower(cell + LEAST, c - base);
    }
    keys[place] = -1;
    totals[place] = MOST;
    marks[place] = -1;
  }
  threadgroup_barrier(mem_flags::mem_device);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  active = group_load(cell + KEPT);
  least = group_load(cell + LEAST);
  widest = active > widest ? active : widest;
  if (offset + active > room)
    status = 1;
  else if (active == 0)
    status = 2;
  if (me == 0) {
    o_first[b * (frames + 2) + f] = offset;
    o_base[b * (frames + 1) + f] = active == 0 ? 0 : base;
  }
  if (status != 0) active = 0;
}
for (int i = f + me; i < frames + 2; i += LANES) {
  o_first[b * (frames + 2) + i] = offset + active;
  if (i < frames + 1) o_base[b * (frames + 1) + i] = 0;
}
if (me == 0) {
  o_report[b * 4] = status;
  o_report[b * 4 + 1] = offset + active;
  o_report[b * 4 + 2] = narrowed;
  o_report[b * 4 + 3] = widest;
}
