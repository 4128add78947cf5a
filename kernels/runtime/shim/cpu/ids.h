// The thread attributes Metal gives a kernel, under Metal's own names.
#pragma once

struct ThreadIds {
  uint3 threadgroup_position_in_grid, thread_position_in_threadgroup, thread_position_in_grid;
  uint3 threads_per_grid, grid_size, grid_origin, threadgroups_per_grid;
  uint3 threads_per_threadgroup, dispatch_threads_per_threadgroup;
  uint thread_index_in_threadgroup, thread_index_in_simdgroup, simdgroup_index_in_threadgroup;
  uint threads_per_simdgroup, thread_execution_width;
  uint simdgroups_per_threadgroup, dispatch_simdgroups_per_threadgroup;
  uint thread_index_in_quadgroup, quadgroup_index_in_threadgroup;
  uint quadgroups_per_threadgroup, dispatch_quadgroups_per_threadgroup;
};

// `flat`: the thread's index in its group. `full`: the threads of a whole group. `size`: those of this group,
// fewer in a ragged last one.
static inline ThreadIds ids_of(uint3 group, uint3 groups, uint3 grid, uint3 full, uint3 size, uint flat) {
  const uint3 local{flat % size.x, flat / size.x % size.y, flat / size.x / size.y};
  const uint n = size.x * size.y * size.z;
  ThreadIds ids{};
  ids.threadgroup_position_in_grid = group;
  ids.thread_position_in_threadgroup = local;
  ids.thread_position_in_grid = {group.x * full.x + local.x, group.y * full.y + local.y, group.z * full.z + local.z};
  ids.threads_per_grid = ids.grid_size = grid;
  ids.threadgroups_per_grid = groups;
  ids.threads_per_threadgroup = size;
  ids.dispatch_threads_per_threadgroup = full;
  ids.thread_index_in_threadgroup = flat;
  ids.thread_index_in_simdgroup = flat % SIMD_W;
  ids.simdgroup_index_in_threadgroup = flat / SIMD_W;
  ids.threads_per_simdgroup = ids.thread_execution_width = SIMD_W;
  ids.simdgroups_per_threadgroup = ids.dispatch_simdgroups_per_threadgroup = (n + SIMD_W - 1) / SIMD_W;
  ids.thread_index_in_quadgroup = flat % 4;
  ids.quadgroup_index_in_threadgroup = flat / 4;
  ids.quadgroups_per_threadgroup = ids.dispatch_quadgroups_per_threadgroup = (n + 3) / 4;
  return ids;
}
