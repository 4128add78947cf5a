// A simdgroup takes an utterance, a lane its slots in turn.
// inputs scores[B, K], same[B, K, K]; outputs y[B, K]
const int lane = int(thread_index_in_simdgroup);
const int beam = scores_shape[1];
const int b = int(threadgroup_position_in_grid.x) * NSG + int(simdgroup_index_in_threadgroup);
if (b < scores_shape[0])
  for (int k = lane; k < beam; k += SIMD_W) {
    auto all = scores + b * beam;
    auto equal = same + (b * beam + k) * beam;
    const float mine = all[k];
    bool wins = mine > -INFINITY;
    int crowd = 0;
    float sum = 0.0f;
    for (int o = 0; o < beam && wins; o++) {
      const float other = all[o];
      if (equal[o] && other > -INFINITY) {
        if (other > mine || (other == mine && o < k)) wins = false;
        sum += exp(other - mine);
        crowd++;
      }
    }
    y[b * beam + k] = !wins ? -INFINITY : crowd > 1 ? mine + log(sum) : mine;
  }
