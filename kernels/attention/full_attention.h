// Products of 32 queries with keys and values, a query in each slot. Keys and values are the same in every lane.

// weights[r * 32 + slot] = query · key r, of KEYS keys in rows of `stride` -> the largest in each slot.
template <int KEYS, int D, typename Q, typename K, typename W>
inline slots key_products(Q query, K key, int stride, int lane, W weights) {
  slots sums[KEYS];
  for (int r = 0; r < KEYS; r++) sums[r] = 0.0f;
  for (int d = 0; d < D; d++) {
    const slots q = take_slots(query + d * 32, lane);
    for (int r = 0; r < KEYS; r++) sums[r] = fma(q, slots(float(key[r * stride + d])), sums[r]);
  }
  slots most = sums[0];
  for (int r = 0; r < KEYS; r++) {
    put_slots<float>(weights + r * 32, lane, sums[r]);
    most = larger(most, sums[r]);
  }
  return most;
}

// out[c * 32 + slot] = the same * fade + the sum of weights · column c of `keys` values in rows of `stride`.
template <int COLUMNS, typename W, typename V, typename O>
inline void add_values(W weights, V value, int stride, int keys, slots fade, int lane, O out) {
  slots sums[COLUMNS];
  for (int c = 0; c < COLUMNS; c++) sums[c] = take_slots(out + c * 32, lane) * fade;
  for (int j = 0; j < keys; j++) {
    const slots w = take_slots(weights + j * 32, lane);
    for (int c = 0; c < COLUMNS; c++) sums[c] = fma(w, slots(float(value[j * stride + c])), sums[c]);
  }
  for (int c = 0; c < COLUMNS; c++) put_slots<float>(out + c * 32, lane, sums[c]);
}
