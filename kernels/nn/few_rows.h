// Rows times a matrix that lies as a tile of 32 columns after another, [columns / 32, inputs, 32]: few rows, so that
// reading the matrix is what costs, and it is read once. A row's sums run over its inputs in their order, whatever
// rows stand beside it.

// How many rows share what is read of a tile: a CPU has registers for the sums of so many.
#if SIMD_W == 1 && defined(__AVX512F__)
static constant constexpr int TOGETHER = 12;
#elif SIMD_W == 1
static constant constexpr int TOGETHER = 3;
#else
static constant constexpr int TOGETHER = 8;
#endif

// sums[r] += the products of row r of `x` [ROWS, INPUTS] with a tile.
template <int ROWS, int INPUTS, typename X, typename W>
inline void add_products(X x, W tile, int lane, thread slots* sums) {
  slots kept[ROWS];
  for (int r = 0; r < ROWS; r++) kept[r] = sums[r];
  for (int i = 0; i < INPUTS; i++) {
    const slots w = take_slots(tile + i * 32, lane);
    for (int r = 0; r < ROWS; r++) kept[r] = fma(w, slots(x[r * INPUTS + i]), kept[r]);
  }
  for (int r = 0; r < ROWS; r++) sums[r] = kept[r];
}

// As above, of `rows` of them, 1 to ROWS: each number has a loop of its own, so that a tile is read once.
template <int ROWS, int INPUTS, typename X, typename W>
inline void add_some_products(X x, W tile, int rows, int lane, thread slots* sums) {
  constexpr int FEWER = ROWS > 1 ? ROWS - 1 : 1;
  if (rows == ROWS)
    add_products<ROWS, INPUTS>(x, tile, lane, sums);
  else if (ROWS > 1)
    add_some_products<FEWER, INPUTS>(x, tile, rows, lane, sums);
}
