// log(exp(a) + exp(b)); `fixed` puts what is added to the larger on the grid.
inline float log_add(float a, float b, bool fixed) {
  const float top = a > b ? a : b;
  const float low = a > b ? b : a;
  if (!(low > -INFINITY)) return top;
  const float more = log(1.0f + exp(low - top));
  return top + (fixed ? on_grid(more) : more);
}

// A score behind its utterance's best: on the grid it is kept within what a float holds exactly.
inline float held(float score, bool fixed) { return fixed && score > -INFINITY && score < -255.0f ? -255.0f : score; }

// Where state s of a graph leads by a label, and what that adds (kernels/search/ngram.py has the arrays).
template <typename N, typename F, typename B, typename P, typename L, typename W, typename T, typename R, typename Q>
inline int graph_step(N count, F first, B fallback, P penalty, L labels, W weights, T targets, R roots, Q root_targets,
                      int root, int s, int label, thread float& gain) {
  float owed = 0.0f;
  while (fallback[s] >= 0) {
    int low = first[s];
    const int end = low + count[s];
    int high = end;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (labels[middle] < label)
        low = middle + 1;
      else
        high = middle;
    }
    if (low < end && labels[low] == label) {
      gain = weights[low] + owed;
      return targets[low];
    }
    owed += penalty[s];
    s = fallback[s];
  }
  gain = roots[root + label] + owed;
  return root_targets[root + label];
}
