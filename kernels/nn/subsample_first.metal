// A threadgroup takes one output frame of an utterance, a simdgroup 32 channels at a time along all its bins.
// inputs x[B, T, F], weight[9, C], bias[C], depthwise[9, C], shift[C], lengths[B] (input frames)
// outputs y[B, T2, F2, C]
// Two 3 x 3 convolutions of stride 2: one channel to C, ReLU, then each channel on its own. The first one's
// output, the largest tensor of the encoder, is never stored: its columns are made as the second needs them.
const int lane = int(thread_index_in_simdgroup);
const int frames = x_shape[1], bins = x_shape[2], channels = bias_shape[0];
const int bins1 = (bins + LEAD) / 2, bins2 = (bins1 + LEAD) / 2;
const int frames2 = ((frames + LEAD) / 2 + LEAD) / 2;
const int utterance = int(threadgroup_position_in_grid.x) / frames2;
const int t2 = int(threadgroup_position_in_grid.x) % frames2;
const int length = lengths[utterance];
const int length1 = length > 0 ? (length + LEAD) / 2 : 0;
const bool live = length > 0 && t2 < (length1 + LEAD) / 2;
auto from = x + utterance * frames * bins;
auto to = y + (utterance * frames2 + t2) * bins2 * channels;
for (int c = int(simdgroup_index_in_threadgroup) * 32; c < channels; c += NSG * 32) {
  const bool full = c + 32 <= channels;
  const int rest = channels - c;
  slots first[9], second[9];
  for (int q = 0; q < 9; q++) {
    first[q] = take_slots(weight + q * channels + c, lane, 0, rest, 0.0f);
    second[q] = take_slots(depthwise + q * channels + c, lane, 0, rest, 0.0f);
  }
  const slots base = take_slots(bias + c, lane, 0, rest, 0.0f);
  const slots base2 = take_slots(shift + c, lane, 0, rest, 0.0f);
  slots columns[9];  // column k of three (the last three computed), frame d of three: 3k + d
  for (int i = 0; i < 9; i++) columns[i] = 0.0f;
  int known = -LEAD;  // columns before this one are computed
  for (int f = 0; f < bins2; f++) {
    for (; live && known < 2 * f - LEAD + 3; known++) {
      for (int i = 0; i < 6; i++) columns[i] = columns[i + 3];
      for (int d = 0; d < 3; d++) {
        const int u = 2 * t2 - LEAD + d;
        slots v = 0.0f;
        if (u >= 0 && u < length1 && known >= 0 && known < bins1) {
          v = base;
          for (int q = 0; q < 9; q++) {
            const int s = 2 * u - LEAD + q / 3, g = 2 * known - LEAD + q % 3;
            const float in = s >= 0 && s < length && g >= 0 && g < bins ? float(from[s * bins + g]) : 0.0f;
            v = fma(in, first[q], v);
          }
          v = relu_of(v);
        }
        columns[6 + d] = v;
      }
    }
    slots sum = 0.0f;
    if (live) {
      sum = base2;
      for (int q = 0; q < 9; q++) sum = fma(columns[q % 3 * 3 + q / 3], second[q], sum);
    }
    if (full)
      put_slots<T>(to + f * channels + c, lane, sum);
    else
      put_slots<T>(to + f * channels + c, lane, 0, rest, sum);
  }
}
