// A simdgroup takes ROWS rows, so that a band's weights are read once for all of them.
// inputs power[R, N], filters[N, W] (W a multiple of 32), ranges[W / 32, 2]; outputs y[R, M]
// A row is summed over its bins in their order, and over those alone that 32 bands have weights for.
const int lane = int(thread_index_in_simdgroup);
const int rows = power_shape[0], bins = power_shape[1], width = filters_shape[1];
const int first = (int(threadgroup_position_in_grid.x) * NSG + int(simdgroup_index_in_threadgroup)) * ROWS;
if (first < rows) {  // the same in every lane
  for (int band = 0; band < width; band += 32) {
    const int from = ranges[band / 32 * 2], to = ranges[band / 32 * 2 + 1];
    slots sum[ROWS];
    for (int r = 0; r < ROWS; r++) sum[r] = 0.0f;
    for (int k = from; k < to; k++) {
      const slots weight = take_slots(filters + k * width + band, lane);
      for (int r = 0; r < ROWS; r++) {
        const int row = first + r < rows ? first + r : rows - 1;
        sum[r] = fma(slots(float(power[row * bins + k])), weight, sum[r]);
      }
    }
    for (int r = 0; r < ROWS; r++)
      if (first + r < rows) put_slots<T>(y + (first + r) * M + band, lane, 0, M - band < 32 ? M - band : 32, sum[r]);
  }
}
