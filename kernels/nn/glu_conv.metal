// A threadgroup takes TILE frames of an utterance, a simdgroup 32 channels of them at a time.
// inputs x[B, T, 2C] (values, then gates), weight[TAPS, C], shift[C], lengths[B]; outputs y[B, T, C]
// The gated frames a tile needs are made once, into a thread array, and convolved from there.
const int lane = int(thread_index_in_simdgroup);
const int frames = x_shape[1], channels = shift_shape[0];
const int tiles = (frames + TILE - 1) / TILE;
const int utterance = int(threadgroup_position_in_grid.x) / tiles;
const int first = int(threadgroup_position_in_grid.x) % tiles * TILE;
const int length = lengths[utterance];
auto from = x + utterance * frames * 2 * channels;
auto to = y + utterance * frames * channels;
for (int c = int(simdgroup_index_in_threadgroup) * 32; c < channels; c += NSG * 32) {
  const bool full = c + 32 <= channels;
  const int rest = channels - c;
  slots gated[TILE + TAPS - 1];
  for (int r = 0; r < TILE + TAPS - 1; r++) {
    const int t = first + r - LEAD;
    gated[r] = 0.0f;
    if (t >= 0 && t < length) {
      auto row = from + t * 2 * channels + c;
      auto gates = row + channels;
      const slots value = full ? take_slots(row, lane) : take_slots(row, lane, 0, rest, 0.0f);
      const slots gate = full ? take_slots(gates, lane) : take_slots(gates, lane, 0, rest, 0.0f);
      gated[r] = value / (1.0f + exp(-gate));
    }
  }
  slots taps[TAPS];
  for (int q = 0; q < TAPS; q++) taps[q] = take_slots(weight + q * channels + c, lane, 0, rest, 0.0f);
  const slots base = take_slots(shift + c, lane, 0, rest, 0.0f);
  // A constant count of rounds: unrolled, `gated` lies in registers on a GPU.
  for (int r = 0; r < TILE; r++) {
    const int t = first + r;
    slots sum = base;
    for (int q = 0; q < TAPS; q++) sum = fma(gated[r + q], taps[q], sum);
    if (ACTIVATES) sum = sum / (1.0f + exp(-sum));
    if (t >= length) sum = 0.0f;
    if (t < frames && full)
      put_slots<T>(to + t * channels + c, lane, sum);
    else if (t < frames)
      put_slots<T>(to + t * channels + c, lane, 0, rest, sum);
  }
}
