// After the kernel: one function to load, which runs a grid of it. The caller brings the threads (pool.cpp).
#pragma once
#undef device
#undef constant
#undef thread
#undef threadgroup

namespace spool {
struct Launch {
  void** buffers;
  uint3 grid, full, groups;
  uint total;
  std::atomic<uint> next{0};
  std::atomic<const char*> error{nullptr};
};

#if SIMD_W != 1
struct OneGroup {
  Launch* launch;
  uint3 position, size;
};
SPOOL_UNCHECKED static void run_lane(void* argument, int lane) {
  OneGroup* one = (OneGroup*)argument;
  Launch* launch = one->launch;
  spool_call(launch->buffers,
             ids_of(one->position, launch->groups, launch->grid, launch->full, one->size, (uint)lane));
}
#endif

static void run_groups(void* argument) {
  Launch* launch = (Launch*)argument;
  const uint3 grid = launch->grid, full = launch->full, groups = launch->groups;
  for (uint g; (g = launch->next.fetch_add(1)) < launch->total;) {
    const uint3 at{g % groups.x, g / groups.x % groups.y, g / groups.x / groups.y};
#if SIMD_W == 1
    spool_call(launch->buffers, ids_of(at, groups, grid, full, full, 0));
#else
    // Metal lets the last group of each axis be ragged.
    const uint3 size{std::min(full.x, grid.x - at.x * full.x), std::min(full.y, grid.y - at.y * full.y),
                     std::min(full.z, grid.z - at.z * full.z)};
    OneGroup one{launch, at, size};
    if (const char* error = run_group((int)(size.x * size.y * size.z), run_lane, &one)) {
      launch->error = error;
      launch->next = launch->total;
      return;
    }
#endif
  }
}
}  // namespace spool

typedef void (*ParallelFor)(int threads, void (*work)(void*), void* argument);

// `grid` and `group` are in threads; null when all went well, else what went wrong.
extern "C" __attribute__((visibility("default"))) const char* spool_launch(
    void** buffers, const uint* grid, const uint* group, int threads, ParallelFor parallel_for) {
  if (group[0] * group[1] * group[2] > (SIMD_W == 1 ? 1u : 1024u)) return "too many threads in a threadgroup";
  spool::Launch launch;
  launch.buffers = buffers;
  launch.grid = {grid[0], grid[1], grid[2]};
  launch.full = {group[0], group[1], group[2]};
  launch.groups = {(grid[0] + group[0] - 1) / group[0], (grid[1] + group[1] - 1) / group[1],
                   (grid[2] + group[2] - 1) / group[2]};
  launch.total = launch.groups.x * launch.groups.y * launch.groups.z;
  threads = (int)std::min<uint>((uint)std::max(threads, 1), launch.total);
  if (threads > 1 && parallel_for)
    parallel_for(threads, spool::run_groups, &launch);
  else
    spool::run_groups(&launch);
  return launch.error;
}
