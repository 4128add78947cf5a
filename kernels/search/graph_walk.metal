// A simdgroup takes an utterance, a lane its hypotheses in turn.
// inputs states[B, K], which[B], parents[B, K], emitted[B, K] (-1: nothing), count[S], first[S], fallback[S],
// labels[M] (in order within a state), targets[M], root_targets[G, V]; outputs y[B, K]
const int lane = int(thread_index_in_simdgroup);
const int beam = states_shape[1];
const int b = int(threadgroup_position_in_grid.x) * NSG + int(simdgroup_index_in_threadgroup);
if (b < states_shape[0])
  for (int k = lane; k < beam; k += SIMD_W) {
    const int parent = parents[b * beam + k], label = emitted[b * beam + k];
    int s = states[b * beam + (parent < 0 ? 0 : parent)];
    bool walks = label >= 0;
    while (walks && fallback[s] >= 0) {
      int low = first[s], high = low + count[s];
      const int end = high;
      while (low < high) {
        const int middle = (low + high) / 2;
        if (labels[middle] < label)
          low = middle + 1;
        else
          high = middle;
      }
      if (low < end && labels[low] == label) {
        s = targets[low];
        walks = false;
      } else {
        s = fallback[s];
      }
    }
    y[b * beam + k] = walks ? root_targets[which[b] * root_targets_shape[1] + label] : s;
  }
