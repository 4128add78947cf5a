// Launches of compiled kernels one after another, over and over, without asking who prepared them.

typedef unsigned int uint;
typedef void (*ParallelFor)(int threads, void (*work)(void*), void* argument);
typedef const char* (*Launch)(void** buffers, const uint* grid, const uint* group, int threads, ParallelFor);

// A ring of `count` arrays of `size` bytes: step s finds the one of number (s + phase) % count.
struct Place {
  char* ring;
  long size, count, phase, offset;
};

struct Entry {
  Launch launch;
  const Place* places;
  long many;
  uint grid[3], group[3];
  int threads;
};

static const int MOST = 64;

static void* found(const Place& place, long step) {
  return place.ring + (step + place.phase) % place.count * place.size + place.offset;
}

// Steps first, first + 1, ... until `steps` are made or `goes_on` is 0 behind one; `done` says how many were.
extern "C" __attribute__((visibility("default"))) const char* spool_replay(const Entry* entries, long many,
                                                                           long first, long steps,
                                                                           const Place* goes_on, long* done,
                                                                           ParallelFor parallel_for) {
  *done = 0;
  for (long step = first; step < first + steps; step++) {
    for (const Entry* entry = entries; entry < entries + many; entry++) {
      void* buffers[MOST];
      if (entry->many > MOST) return "too many buffers";
      for (long i = 0; i < entry->many; i++) buffers[i] = found(entry->places[i], step);
      if (const char* error = entry->launch(buffers, entry->grid, entry->group, entry->threads, parallel_for))
        return error;
    }
    ++*done;
    if (*(const int*)found(*goes_on, step) == 0) break;
  }
  return nullptr;
}
