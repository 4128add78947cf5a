// A threadgroup takes 32 bands of an utterance. inputs x[B, N, M], lengths[B] (frames); outputs y[B, N, M]
// Frames are cut into PARTS parts by the utterance's length alone and the parts are joined in order: neither padding
// nor the number of simdgroups changes a sum.
constexpr int PARTS = 8;
threadgroup float parts[PARTS * 32];
threadgroup float middle[32];
threadgroup float spread[32];
const int lane = int(thread_index_in_simdgroup);
const int sg = int(simdgroup_index_in_threadgroup);
const int frames = x_shape[1], bands = x_shape[2];
const int across = (bands + 31) / 32;
const int utterance = int(threadgroup_position_in_grid.x) / across;
const int band = int(threadgroup_position_in_grid.x) % across * 32;
const int rest = bands - band < 32 ? bands - band : 32;
const int length = lengths[utterance] < frames ? lengths[utterance] : frames;
const int a_part = (length + PARTS - 1) / PARTS;
auto from = x + utterance * frames * bands + band;
auto to = y + utterance * frames * bands + band;
const slots begin = length > 0 ? take_slots(from, lane, 0, rest, 0.0f) : slots(0.0f);
for (int part = sg; part < PARTS; part += NSG) {
  const int end = (part + 1) * a_part < length ? (part + 1) * a_part : length;
  slots sum = 0.0f;
  for (int t = part * a_part; t < end; t++) sum += take_slots(from + t * bands, lane, 0, rest, 0.0f) - begin;
  put_slots<float>(parts + part * 32, lane, sum);
}
threadgroup_barrier(mem_flags::mem_threadgroup);
if (sg == 0)
  for (int i = lane; i < 32; i += SIMD_W) {
    float sum = 0.0f;
    for (int part = 0; part < PARTS; part++) sum += parts[part * 32 + i];
    middle[i] = sum / float(length > 0 ? length : 1);
  }
threadgroup_barrier(mem_flags::mem_threadgroup);
const slots mean = take_slots(middle, lane);
for (int part = sg; part < PARTS; part += NSG) {
  const int end = (part + 1) * a_part < length ? (part + 1) * a_part : length;
  slots sum = 0.0f;
  for (int t = part * a_part; t < end; t++) {
    const slots d = take_slots(from + t * bands, lane, 0, rest, 0.0f) - begin - mean;
    sum = fma(d, d, sum);
  }
  put_slots<float>(parts + part * 32, lane, sum);
}
threadgroup_barrier(mem_flags::mem_threadgroup);
if (sg == 0)
  for (int i = lane; i < 32; i += SIMD_W) {
    float sum = 0.0f;
    for (int part = 0; part < PARTS; part++) sum += parts[part * 32 + i];
    spread[i] = sqrt(sum / float(length > 1 ? length - 1 : 1)) + 1e-5f;
  }
threadgroup_barrier(mem_flags::mem_threadgroup);
const slots deviation = take_slots(spread, lane);
for (int t = sg; t < frames; t += NSG) {
  slots value = 0.0f;
  if (t < length) value = (take_slots(from + t * bands, lane, 0, rest, 0.0f) - begin - mean) / deviation;
  put_slots<T>(to + t * bands, lane, 0, rest, value);
}
