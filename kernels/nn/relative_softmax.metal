// A simdgroup takes a row of scores, query i of one head of one utterance.
// inputs content[B, H, T, T], position[B, H, T, 2T-1], lengths[B], window[2] (frames to the left and right, or
// a negative number for all of them); outputs y[B, H, T, T]
// Key j of query i has relative position i - j, which is column T-1-i+j: along a row both run with j.
// KEEP: scores, then exponentials, wait in y, exact where that is float; else they are computed again.
const int lane = int(thread_index_in_simdgroup);
const int frames = content_shape[3];
const int row = int(threadgroup_position_in_grid.x) * NSG + int(simdgroup_index_in_threadgroup);
if (row < content_shape[0] * content_shape[1] * frames) {  // the same in every lane
  const int query = row % frames;
  const int length = lengths[row / frames / content_shape[1]];
  int lo = 0, hi = query < length ? length : 0;
  if (window[0] >= 0 && query - window[0] > lo) lo = query - window[0];
  if (window[1] >= 0 && query + window[1] + 1 < hi) hi = query + window[1] + 1;
  auto a = content + row * frames;
  auto b = position + row * (2 * frames - 1) + (frames - 1 - query);
  auto to = y + row * frames;
  const float scale = 1.0f / sqrt(float(DK));
  // Blocks start at multiples of 32 of the key's own index: the order of sums knows nothing of the padding.
  const int begin = lo / 32 * 32;
  slots top = -INFINITY, part = 0.0f;
  for (int i = begin; i < hi; i += 32) {
    if (i >= lo && i + 32 <= hi) {
      const slots v = (take_slots(a + i, lane) + take_slots(b + i, lane)) * scale;
      top = larger(top, v);
      if (KEEP) put_slots<T>(to + i, lane, v);
    } else {
      const slots v =
          (take_slots(a + i, lane, lo - i, hi - i, -INFINITY) + take_slots(b + i, lane, lo - i, hi - i, 0.0f)) * scale;
      top = larger(top, v);
      if (KEEP) put_slots<T>(to + i, lane, lo - i, hi - i, v);
    }
  }
  const float most = slot_max(top);
  for (int i = begin; i < hi; i += 32) {
    if (i >= lo && i + 32 <= hi) {
      const slots v = KEEP ? take_slots(to + i, lane) : (take_slots(a + i, lane) + take_slots(b + i, lane)) * scale;
      const slots e = exp(v - most);
      part += e;
      if (KEEP) put_slots<T>(to + i, lane, e);
    } else {
      const slots v = KEEP ? take_slots(to + i, lane, lo - i, hi - i, -INFINITY)
                           : (take_slots(a + i, lane, lo - i, hi - i, -INFINITY) +
                              take_slots(b + i, lane, lo - i, hi - i, 0.0f)) * scale;
      const slots e = exp(v - most);
      part += e;
      if (KEEP) put_slots<T>(to + i, lane, lo - i, hi - i, e);
    }
  }
  const float norm = 1.0f / slot_sum(part);
  for (int i = 0; i < frames; i += 32) {
    if (i >= lo && i + 32 <= hi) {
      const slots e = KEEP ? take_slots(to + i, lane)
                           : exp((take_slots(a + i, lane) + take_slots(b + i, lane)) * scale - most);
      put_slots<T>(to + i, lane, e * norm);
    } else if (i + 32 <= lo || i >= hi) {
      put_slots<T>(to + i, lane, 0, frames - i, 0.0f);
    } else {
      const slots e = KEEP ? take_slots(to + i, lane, lo - i, hi - i, 0.0f)
                           : exp((take_slots(a + i, lane, lo - i, hi - i, -INFINITY) +
                                  take_slots(b + i, lane, lo - i, hi - i, 0.0f)) * scale - most);
      put_slots<T>(to + i, lane, lo - i, hi - i, e * norm);
      put_slots<T>(to + i, lane, 0, lo - i, 0.0f);
      put_slots<T>(to + i, lane, hi - i, frames - i, 0.0f);
    }
  }
}
