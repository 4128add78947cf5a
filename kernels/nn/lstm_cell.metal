// A simdgroup takes a row. inputs entering[N, 4H], recurrent[N, 4H] (their sum is the gates: input, forget,
// candidate, output), cell[N, H]; outputs hidden[N, H], carried[N, H]
// tanh v = 1 - 2 / (1 + exp 2v): the one exponential of this build serves both, and no end of float breaks it.
const int lane = int(thread_index_in_simdgroup);
const int width = cell_shape[1];
const int row = int(threadgroup_position_in_grid.x) * NSG + int(simdgroup_index_in_threadgroup);
if (row < cell_shape[0]) {  // the same in every lane
  auto a = entering + row * 4 * width;
  auto b = recurrent + row * 4 * width;
  for (int c = 0; c < width; c += 32) {
    const int rest = width - c;
    slots gate[4];
    for (int g = 0; g < 4; g++) {
      const int at = g * width + c;
      if (rest >= 32)
        gate[g] = take_slots(a + at, lane) + take_slots(b + at, lane);
      else
        gate[g] = take_slots(a + at, lane, 0, rest, 0.0f) + take_slots(b + at, lane, 0, rest, 0.0f);
    }
    const slots entry = 1.0f / (1.0f + exp(-gate[0]));
    const slots forget = 1.0f / (1.0f + exp(-gate[1]));
    const slots candidate = 1.0f - 2.0f / (1.0f + exp(2.0f * gate[2]));
    const slots output = 1.0f / (1.0f + exp(-gate[3]));
    const slots kept = fma(forget, take_slots(cell + row * width + c, lane, 0, rest, 0.0f), entry * candidate);
    const slots shown = output * (1.0f - 2.0f / (1.0f + exp(2.0f * kept)));
    put_slots<T>(carried + row * width + c, lane, 0, rest, kept);
    put_slots<T>(hidden + row * width + c, lane, 0, rest, shown);
  }
}
