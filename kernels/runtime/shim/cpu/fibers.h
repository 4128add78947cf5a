// Every lane of a threadgroup is a fiber on one thread of the system, so barriers and simd operations meet as on a
// GPU. What a GPU leaves undefined is an error here: lanes that meet at different operations, or wait for ever.
// Under the thread sanitizer each fiber counts as a thread: a missing barrier is a data race it reports.
#pragma once
#include <sys/mman.h>

#include "fiber_switch.h"

#if defined(__SANITIZE_THREAD__)
#define SPOOL_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SPOOL_TSAN 1
#endif
#endif

#ifdef SPOOL_TSAN
extern "C" {
void* __tsan_create_fiber(unsigned);
void __tsan_destroy_fiber(void*);
void __tsan_switch_to_fiber(void*, unsigned);
void* __tsan_get_current_fiber();
void __tsan_acquire(void*);
void __tsan_release(void*);
}
#define SPOOL_UNCHECKED __attribute__((no_sanitize("thread"), noinline))
#else
#define SPOOL_UNCHECKED __attribute__((noinline))
#endif

namespace spool {
constexpr int MAX_LANES = 1024;
constexpr size_t STACK_BYTES = 64 << 10;
constexpr uint THREADGROUP_BYTES = 32 << 10;  // what every Apple GPU gives

enum Waiting : unsigned char { READY, AT_SIMD, AT_THREADGROUP };

struct Lane {
  void* stack;
  uint allocated;  // bytes of threadgroup memory it has declared so far
  Waiting waiting;
  int line;
  uint round;
  void* tsan;
};

struct Simdgroup {
  uint round;  // operations completed
  int arrived, live, operation, line;
  unsigned char values[2][32][16];  // by parity of the round: a fast lane may start the next one
  char sync[2];
};

struct Group {
  Lane lanes[MAX_LANES];
  Simdgroup simdgroups[MAX_LANES / 32];
  int size, live, current, arrived, line;
  uint round;
  char *stacks, *memory;
  void *host_stack, *host_tsan;
  const char* error;
  void (*entry)(void*, int);
  void* argument;
  char sync[2], start, end;
};

inline Group*& group() {
  static thread_local Group* one = nullptr;
  return one;
}

inline void acquire(void* address) {
#ifdef SPOOL_TSAN
  __tsan_acquire(address);
#else
  (void)address;
#endif
}
inline void release(void* address) {
#ifdef SPOOL_TSAN
  __tsan_release(address);
#else
  (void)address;
#endif
}

constexpr int HOST = -1;

SPOOL_UNCHECKED inline void go(Group* g, int from, int to) {
  g->current = to;
#ifdef SPOOL_TSAN
  __tsan_switch_to_fiber(to == HOST ? g->host_tsan : g->lanes[to].tsan, 1);
#endif
  spool_switch(from == HOST ? &g->host_stack : &g->lanes[from].stack,
               to == HOST ? g->host_stack : g->lanes[to].stack);
}

// Back to the host at once; the other fibers are left where they stand and their stacks made afresh next time.
SPOOL_UNCHECKED inline void fail(Group* g, const char* why, int line) {
  fprintf(stderr, "kernel: %s (line %d, lane %d)\n", why, line, g->current);
  g->error = why;
  go(g, g->current, HOST);
  abort();
}

SPOOL_UNCHECKED inline bool may_run(Group* g, int index) {
  const Lane& lane = g->lanes[index];
  if (index >= g->size || lane.round == ~0u) return false;
  if (lane.waiting == AT_SIMD) return g->simdgroups[index / 32].round != lane.round;
  if (lane.waiting == AT_THREADGROUP) return g->round != lane.round;
  return true;
}

// Run another lane, first of the same simdgroup; returns when this one may go on.
SPOOL_UNCHECKED inline void give_way(Group* g) {
  const int me = g->current, simdgroup = me / 32 * 32;
  for (int k = 1; k < 32; k++) {
    const int other = simdgroup + (me + k) % 32;
    if (may_run(g, other)) return go(g, me, other);
  }
  const int lanes = (g->size + 31) / 32 * 32;
  for (int k = 32; k < lanes; k++) {
    const int other = (simdgroup + k) % lanes;
    if (may_run(g, other)) return go(g, me, other);
  }
  if (may_run(g, me)) return;
  if (g->live == 0) return go(g, me, HOST);
  fail(g, "lanes wait at different barriers or simd operations", g->lanes[me].line);
}

SPOOL_UNCHECKED inline void wait(Group* g, Waiting what, uint round, int line) {
  Lane& lane = g->lanes[g->current];
  lane.waiting = what;
  lane.round = round;
  lane.line = line;
  give_way(g);
  lane.waiting = READY;
  lane.round = 0;
}

SPOOL_UNCHECKED inline void meet_simdgroup(Group* g, int operation, int line) {
  Simdgroup& s = g->simdgroups[g->current / 32];
  if (s.arrived == 0) {
    s.operation = operation;
    s.line = line;
  } else if (s.operation != operation || s.line != line) {
    fail(g, "lanes of one simdgroup meet at different simd operations", line);
  }
  if (++s.arrived == s.live) {
    s.arrived = 0;
    s.round++;
  } else {
    wait(g, AT_SIMD, s.round, line);
  }
}

// Barriers take turns with two marks: a lane that still waits at one must not learn of what others do before the next.
SPOOL_UNCHECKED inline void meet_threadgroup(int line) {
  Group* g = group();
  char* sync = &g->sync[g->round & 1];
  release(sync);
  if (g->arrived == 0)
    g->line = line;
  else if (g->line != line)
    fail(g, "lanes meet at different threadgroup barriers", line);
  if (++g->arrived == g->live) {
    g->arrived = 0;
    g->round++;
  } else {
    wait(g, AT_THREADGROUP, g->round, line);
  }
  acquire(sync);
}

SPOOL_UNCHECKED inline void meet_at_barrier(int line) {
  Group* g = group();
  Simdgroup& s = g->simdgroups[g->current / 32];
  char* sync = &s.sync[s.round & 1];
  release(sync);
  meet_simdgroup(g, 0, line);
  acquire(sync);
}

// Each lane hands in a value; returns those of the whole simdgroup.
template <class T>
SPOOL_UNCHECKED const unsigned char (*exchange(T value, int operation, int line))[16] {
  static_assert(sizeof(T) <= 16, "exchange");
  Group* g = group();
  Simdgroup& s = g->simdgroups[g->current / 32];
  auto values = s.values[s.round & 1];
  memcpy(values[g->current % 32], &value, sizeof value);
  meet_simdgroup(g, operation, line);
  return values;
}

// Lanes declare their arrays in the same order, so equal offsets are equal arrays.
SPOOL_UNCHECKED inline char* allocate(size_t bytes) {
  Group* g = group();
  Lane& lane = g->lanes[g->current];
  char* at = g->memory + lane.allocated;
  lane.allocated += (uint)((bytes + 63) & ~(size_t)63);
  if (lane.allocated > THREADGROUP_BYTES) fail(g, "more than 32 KiB of threadgroup memory", 0);
  return at;
}

SPOOL_UNCHECKED inline void lane_main() {
  Group* g = group();
  acquire(&g->start);
  const int me = g->current;
  g->entry(g->argument, me);
  release(&g->end);
  Simdgroup& s = g->simdgroups[me / 32];
  g->lanes[me].round = ~0u;  // done: never runs again
  g->live--;
  s.live--;
  if (s.arrived && s.arrived == s.live) fail(g, "a lane returned while others of its simdgroup wait", s.line);
  if (g->arrived && g->arrived == g->live) fail(g, "a lane returned while others wait at a barrier", g->line);
  give_way(g);
  abort();
}

SPOOL_UNCHECKED inline char* map_memory(size_t bytes) {
  return (char*)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

// Runs `size` lanes of one threadgroup to their end; null, or what went wrong.
SPOOL_UNCHECKED inline const char* run_group(int size, void (*entry)(void*, int), void* argument) {
  Group*& g = group();
  if (!g) {
    g = (Group*)calloc(1, sizeof(Group));
    g->stacks = map_memory(STACK_BYTES * MAX_LANES);
    g->memory = map_memory(THREADGROUP_BYTES);
  }
  g->size = g->live = size;
  g->arrived = 0;
  g->error = nullptr;
  g->entry = entry;
  g->argument = argument;
  for (int first = 0; first < size; first += 32) {
    Simdgroup& s = g->simdgroups[first / 32];
    s.arrived = 0;
    s.live = std::min(32, size - first);
  }
  for (int i = 0; i < size; i++) {
    Lane& lane = g->lanes[i];
    lane.waiting = READY;
    lane.round = lane.allocated = 0;
#ifdef SPOOL_TSAN
    if (lane.tsan) __tsan_destroy_fiber(lane.tsan);
    lane.tsan = __tsan_create_fiber(0);
#endif
    // Staggered, so that equal frames of different lanes do not share one set of the cache.
    lane.stack = fresh_stack(g->stacks + STACK_BYTES * (i + 1) - 64 - (i % 61) * 64, lane_main);
  }
#ifdef SPOOL_TSAN
  g->host_tsan = __tsan_get_current_fiber();
#endif
  release(&g->start);
  go(g, HOST, 0);
  acquire(&g->end);
  return g->error;
}
}  // namespace spool
