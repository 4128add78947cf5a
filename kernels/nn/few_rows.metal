// A threadgroup takes TILES tiles of 32 columns of the output, its simdgroups these in turn.
// inputs left[L, I], right[R, JOINS: I, else O], pairs[2, N] (a row of each), weights[O / 32, I, 32], bias[O]
// outputs y[N, O]. Where JOINS, y is the product of act(left + right), and zeros where left's row is -1; else
// the product of left, and where its row is -1 it is right's row as that stands.
threadgroup float x[TOGETHER * I];
const int lane = int(thread_index_in_simdgroup);
const int sg = int(simdgroup_index_in_threadgroup);
const int rows = pairs_shape[1];
const int width = bias_shape[0];
const int tiles = (width + 31) / 32;
const int first = int(threadgroup_position_in_grid.x) * TILES;
const int behind = first + TILES < tiles ? first + TILES : tiles;
int from = 0;
while (from < rows) {  // the same in every lane of every simdgroup
  int row[TOGETHER];
  int many = 0;
  while (from < rows && many < TOGETHER) {
    if (pairs[from] >= 0) {
      row[many] = from;
      many++;
    } else {
      auto kept = right + (JOINS ? 0 : pairs[rows + from] * width);
      for (int tile = first + sg; tile < behind; tile += NSG) {
        const int at = tile * 32, rest = width - at;
        put_slots<float>(y + from * width + at, lane, 0, rest,
                         JOINS ? slots(0.0f) : take_slots(kept + at, lane, 0, rest, 0.0f));
      }
    }
    from++;
  }
  for (int r = sg; r < many; r += NSG) {
    auto a = left + pairs[row[r]] * I;
    auto b = right + (JOINS ? pairs[rows + row[r]] * I : 0);
    for (int i = 0; i < I; i += 32) {
      slots v = take_slots(a + i, lane, 0, I - i, 0.0f);
      if (JOINS) {
        const slots sum = v + take_slots(b + i, lane, 0, I - i, 0.0f);
        if (RELU) {
          v = relu_of(sum);
        } else {
          const slots share = 1.0f / (1.0f + exp(TANH ? 2.0f * sum : -sum));
          v = TANH ? 1.0f - 2.0f * share : share;
        }
      }
      put_slots<float>(x + r * I + i, lane, 0, I - i, v);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int tile = first + sg; tile < behind && many > 0; tile += NSG) {
    slots sums[TOGETHER];
    const int at = tile * 32, rest = width - at;
    const slots start = take_slots(bias + at, lane, 0, rest, 0.0f);
    for (int r = 0; r < TOGETHER; r++) sums[r] = start;
    add_some_products<TOGETHER, I>(x, weights + at * I, many, lane, sums);
    for (int r = 0; r < many; r++) put_slots<float>(y + row[r] * width + at, lane, 0, rest, sums[r]);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
