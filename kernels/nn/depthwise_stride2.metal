// A threadgroup takes one output frame of an utterance, a simdgroup 32 channels of each of its bins at a time.
// inputs x[B, T, F, C], weight[9, C], bias[C], lengths[B] (input frames); outputs y[B, TO, FO, C]
// 3 x 3, stride 2, LEAD zeros before both axes: input 2o - LEAD + k. RELU: the input goes through it first.
const int lane = int(thread_index_in_simdgroup);
const int frames = x_shape[1], bins = x_shape[2], channels = x_shape[3];
const int frames_out = (frames + LEAD) / 2, bins_out = (bins + LEAD) / 2;
const int utterance = int(threadgroup_position_in_grid.x) / frames_out;
const int t = int(threadgroup_position_in_grid.x) % frames_out;
const int length = lengths[utterance];
const bool live = length > 0 && t < (length + LEAD) / 2;
const int top = 2 * t - LEAD;
auto from = x + utterance * frames * bins * channels;
auto to = y + (utterance * frames_out + t) * bins_out * channels;
for (int f = 0; f < bins_out; f++) {
  const int left = 2 * f - LEAD;
  const bool inside = live && top >= 0 && top + 3 <= length && left >= 0 && left + 3 <= bins;
  for (int c = int(simdgroup_index_in_threadgroup) * 32; c < channels; c += NSG * 32) {
    if (inside && c + 32 <= channels) {
      auto at = from + (top * bins + left) * channels + c;
      slots sum = take_slots(bias + c, lane);
      for (int q = 0; q < 9; q++) {
        slots v = take_slots(at + (q / 3 * bins + q % 3) * channels, lane);
        if (RELU) v = relu_of(v);
        sum = fma(v, take_slots(weight + q * channels + c, lane), sum);
      }
      put_slots<T>(to + f * channels + c, lane, sum);
    } else {
      const int rest = channels - c;
      slots sum = 0.0f;
      if (live) sum = take_slots(bias + c, lane, 0, rest, 0.0f);
      for (int q = 0; q < 9; q++) {
        const int u = top + q / 3, g = left + q % 3;
        if (live && u >= 0 && u < length && g >= 0 && g < bins) {
          slots v = take_slots(from + (u * bins + g) * channels + c, lane, 0, rest, 0.0f);
          if (RELU) v = relu_of(v);
          sum = fma(v, take_slots(weight + q * channels + c, lane, 0, rest, 0.0f), sum);
        }
      }
      put_slots<T>(to + f * channels + c, lane, 0, rest, sum);
    }
  }
}
