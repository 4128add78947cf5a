// One lane goes through the utterances: integers alone, and few of them.
// inputs slots_of[FIELDS, B, K], scores[B, K]; outputs, with N = B * K: rows[3, N] and products[2, N] (as
// nn/lstm_rows.metal takes them, for a first layer), upper_rows[3, N] and upper_products[2, N] (for the layers above
// it), kept[2, N] and joined[2, N] (as nn/few_rows.metal takes them: what was stepped, and what runs on), running[1]
constexpr int LABEL = 0, PARENT = 3, ORIGIN = 7, ROW = 8, STATUS = 9;  // of the slots
constexpr int FINISHED = 1;                                           // of a status
threadgroup int place[K];
const int places = scores_shape[0] * K;
if (int(thread_index_in_threadgroup) == 0) {
  int made = 0, read = 0, runs = 0;
  for (int first = 0; first < places; first += K) {
    for (int k = 0; k < K; k++) place[k] = -1;
    for (int k = 0; k < K; k++) {
      const int n = first + k;
      const int origin = slots_of[ORIGIN * places + n];
      const bool reads = origin >= K;
      const int of = first + (reads ? origin - K : 0);
      const int parent = reads ? slots_of[PARENT * places + of] : origin;
      const int label = reads ? slots_of[LABEL * places + of] : -1;
      if (reads && place[parent] < 0) {
        place[parent] = made;
        products[made] = first + parent;
        products[places + made] = first + parent;
        made++;
      }
      rows[n] = first + parent;
      rows[places + n] = label;
      rows[2 * places + n] = reads ? place[parent] : 0;
      upper_rows[n] = first + parent;
      upper_rows[places + n] = label;
      upper_rows[2 * places + n] = reads ? read : 0;
      if (reads) {
        upper_products[read] = first + parent;
        upper_products[places + read] = n;
        read++;
      }
      kept[n] = reads ? n : -1;
      kept[places + n] = first + parent;
      const bool on = slots_of[STATUS * places + n] != FINISHED && scores[n] > -INFINITY;
      joined[n] = on ? slots_of[ROW * places + n] : -1;
      joined[places + n] = n;
      runs += on ? 1 : 0;
    }
  }
  for (int i = made; i < places; i++) products[i] = products[places + i] = -1;
  for (int i = read; i < places; i++) upper_products[i] = upper_products[places + i] = -1;
  running[0] = runs;
}
