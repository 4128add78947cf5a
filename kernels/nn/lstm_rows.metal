// A threadgroup takes 32 units of the state, its simdgroups gates and rows in turn.
// inputs entering[V, 4H] (what a label gives to the gates; where UPPER one row, the bias), below[N, H] (read where
// UPPER), hidden[P, H], cell[P, H], rows[3, N] (the row gone on from; the label read, -1: none, the row is kept; and
// the place of its products), products[2, N] (the row of hidden and the row of below that each is of, -1 behind the last),
// weights[H / 32, 4, UPPER: 2H, else H, 32]; outputs o_hidden[N, H], o_cell[N, H]
// tanh v = 1 - 2 / (1 + exp 2v), as in lstm_cell.metal.
constexpr int PASSES = UPPER ? 2 : 1;
threadgroup float x[TOGETHER * H];
threadgroup float gates[TOGETHER * 4 * 32];
const int lane = int(thread_index_in_simdgroup);
const int sg = int(simdgroup_index_in_threadgroup);
const int tile = int(threadgroup_position_in_grid.x);
const int many = rows_shape[1];
int made = 0;
while (made < many && products[made] >= 0) made++;
const int at = tile * 32;
const int rest = H - at;
for (int n = sg; n < many; n += NSG)
  if (rows[many + n] < 0) {
    put_slots<float>(o_hidden + n * H + at, lane, 0, rest, take_slots(hidden + rows[n] * H + at, lane, 0, rest, 0.0f));
    put_slots<float>(o_cell + n * H + at, lane, 0, rest, take_slots(cell + rows[n] * H + at, lane, 0, rest, 0.0f));
  }
for (int from = 0; from < made; from += TOGETHER) {
  const int some = made - from < TOGETHER ? made - from : TOGETHER;
  for (int pass = 0; pass < PASSES; pass++) {
    for (int r = sg; r < some; r += NSG) {
      auto source = pass == 0 ? hidden + products[from + r] * H : below + products[many + from + r] * H;
      for (int i = 0; i < H; i += 32) put_slots<float>(x + r * H + i, lane, 0, H - i, take_slots(source + i, lane, 0, H - i, 0.0f));
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int g = sg; g < 4; g += NSG) {
      slots sums[TOGETHER];
      for (int r = 0; r < TOGETHER; r++)
        sums[r] = pass == 0 || r >= some ? slots(0.0f) : take_slots(gates + (r * 4 + g) * 32, lane);
      add_some_products<TOGETHER, H>(x, weights + ((tile * 4 + g) * PASSES + pass) * H * 32, some, lane, sums);
      for (int r = 0; r < some; r++) put_slots<float>(gates + (r * 4 + g) * 32, lane, sums[r]);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  for (int n = sg; n < many; n += NSG) {
    const int label = rows[many + n];
    const int r = rows[2 * many + n] - from;
    if (label >= 0 && r >= 0 && r < some) {
      slots gate[4];
      for (int g = 0; g < 4; g++)
        gate[g] = take_slots(entering + ((UPPER ? 0 : label) * 4 + g) * H + at, lane, 0, rest, 0.0f) +
                  take_slots(gates + (r * 4 + g) * 32, lane);
      const slots entry = 1.0f / (1.0f + exp(-gate[0]));
      const slots forget = 1.0f / (1.0f + exp(-gate[1]));
      const slots candidate = 1.0f - 2.0f / (1.0f + exp(2.0f * gate[2]));
      const slots output = 1.0f / (1.0f + exp(-gate[3]));
      const slots kept = fma(forget, take_slots(cell + rows[n] * H + at, lane, 0, rest, 0.0f), entry * candidate);
      put_slots<float>(o_cell + n * H + at, lane, 0, rest, kept);
      put_slots<float>(o_hidden + n * H + at, lane, 0, rest, output * (1.0f - 2.0f / (1.0f + exp(2.0f * kept))));
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
