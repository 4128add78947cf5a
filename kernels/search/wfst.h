// Integers that lanes of a threadgroup share, in device memory and in its own. Relaxed: barriers order them.
inline int load_at(device int* at) { return atomic_load_explicit((device atomic_int*)at, memory_order_relaxed); }
inline int swap_at(device int* at, int v) {
  return atomic_exchange_explicit((device atomic_int*)at, v, memory_order_relaxed);
}
inline int lower_at(device int* at, int v) {
  return atomic_fetch_min_explicit((device atomic_int*)at, v, memory_order_relaxed);
}
inline int group_load(threadgroup int* at) {
  return atomic_load_explicit((threadgroup atomic_int*)at, memory_order_relaxed);
}
inline void group_store(threadgroup int* at, int v) {
  atomic_store_explicit((threadgroup atomic_int*)at, v, memory_order_relaxed);
}
inline int group_lower(threadgroup int* at, int v) {
  return atomic_fetch_min_explicit((threadgroup atomic_int*)at, v, memory_order_relaxed);
}
inline int group_add(threadgroup int* at, int v) {
  return atomic_fetch_add_explicit((threadgroup atomic_int*)at, v, memory_order_relaxed);
}

// A hash table of mask + 1 places, never full: keys[place] is a state, -1 where there is none.
inline int first_place(int state, int mask) { return int((uint(state) * 2654435761u) >> 8) & mask; }

// The place of a state, taken for it where it has none yet, which `fresh` then says.
inline int claim_place(device int* keys, int mask, int state, thread bool& fresh) {
  int place = first_place(state, mask);
  fresh = false;
  for (;;) {
    int key = load_at(keys + place);
    while (key == -1) {
      if (atomic_compare_exchange_weak_explicit((device atomic_int*)(keys + place), &key, state, memory_order_relaxed,
                                                memory_order_relaxed)) {
        fresh = true;
        return place;
      }
    }
    if (key == state) return place;
    place = (place + 1) & mask;
  }
}
// The place of a state, -1 where it has none, once nobody writes.
inline int find_place(device int* keys, int mask, int state) {
  int place = first_place(state, mask);
  for (;;) {
    const int key = keys[place];
    if (key == state || key == -1) return key == -1 ? -1 : place;
    place = (place + 1) & mask;
  }
}

// A simdgroup's lanes share the arcs of 32 states, not the states. Each lane brings how many arcs its state has; it
// gets the number of those up to and with its own.
inline int arcs_until(int many, int lane) {
  int until = many;
  for (int o = 1; o < SIMD_W; o <<= 1) {
    const int before = simd_shuffle_up(until, ushort(o));
    until += lane >= o ? before : 0;
  }
  return until;
}
// The lane whose state has the e-th arc of all.
inline int lane_of_arc(int until, int e) {
  int owner = 0;
  for (int o = SIMD_W / 2; o > 0; o >>= 1) {
    const int probed = simd_shuffle(until, ushort(owner + o - 1));
    owner += probed <= e ? o : 0;
  }
  return owner;
}
