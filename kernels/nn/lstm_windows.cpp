// Layers of an LSTM over many windows at once, on one core of an x86-64 CPU. Windows are columns, LANES a vector
// and 3 vectors a panel. A block of rows holds the four gates of UNITS units, and its weights lie in the order in
// which they are read, so that products, activations and the cell leave the registers but once. A column is
// computed by itself, whatever stands beside it.
#include <immintrin.h>

#ifdef __AVX512F__
typedef __m512 lanes;
static const int LANES = 16, UNITS = 2;
static inline lanes load(const float* at) { return _mm512_loadu_ps(at); }
static inline void store(float* at, lanes v) { _mm512_storeu_ps(at, v); }
static inline lanes all(float v) { return _mm512_set1_ps(v); }
static inline lanes fused(lanes a, lanes b, lanes c) { return _mm512_fmadd_ps(a, b, c); }
static inline lanes smaller(lanes a, lanes b) { return _mm512_min_ps(a, b); }
static inline lanes larger(lanes a, lanes b) { return _mm512_max_ps(a, b); }
#else
typedef __m256 lanes;
static const int LANES = 8, UNITS = 1;
static inline lanes load(const float* at) { return _mm256_loadu_ps(at); }
static inline void store(float* at, lanes v) { _mm256_storeu_ps(at, v); }
static inline lanes all(float v) { return _mm256_set1_ps(v); }
static inline lanes fused(lanes a, lanes b, lanes c) { return _mm256_fmadd_ps(a, b, c); }
static inline lanes smaller(lanes a, lanes b) { return _mm256_min_ps(a, b); }
static inline lanes larger(lanes a, lanes b) { return _mm256_max_ps(a, b); }
#endif

static const int PANEL = 3 * LANES, ROWS = 4 * UNITS;

// The quotient of polynomials that Eigen uses, within 3e-7; beyond 7.9 it is 1.
static inline lanes tanh_of(lanes v) {
  const lanes x = larger(smaller(v, all(7.90531110763549805f)), all(-7.90531110763549805f));
  const lanes s = x * x;
  lanes p = fused(s, all(-2.76076847742355e-16f), all(2.00018790482477e-13f));
  p = fused(s, p, all(-8.60467152213735e-11f));
  p = fused(s, p, all(5.12229709037114e-08f));
  p = fused(s, p, all(1.48572235717979e-05f));
  p = fused(s, p, all(6.37261928875436e-04f));
  p = fused(s, p, all(4.89352455891786e-03f));
  lanes q = fused(s, all(1.19825839466702e-06f), all(1.18534705686654e-04f));
  q = fused(s, q, all(2.26843463243900e-03f));
  q = fused(s, q, all(4.89352518554385e-03f));
  return x * p / q;
}

// One layer, one step, VECTORS vectors of a panel. `entering` is [inputs, stride], `before`, `after` and `memory`
// are [size, PANEL], `weights` [size / UNITS, inputs + size, ROWS], `bias` [size / UNITS, ROWS]. The weights of
// gates i, f and o are halved: sigmoid(v) = 0.5 * tanh(v / 2) + 0.5.
template <int VECTORS>
static void step(const float* entering, long stride, int inputs, int size, const float* weights, const float* bias,
                 const float* before, float* after, float* memory) {
  for (int block = 0; block < size / UNITS; block++) {
    lanes sums[ROWS][VECTORS];
    for (int r = 0; r < ROWS; r++)
      for (int v = 0; v < VECTORS; v++) sums[r][v] = all(bias[block * ROWS + r]);
    const float* weight = weights + (long)block * (inputs + size) * ROWS;
    const float* from = entering;
    for (int k = 0; k < inputs; k++, from += stride, weight += ROWS) {
      lanes x[VECTORS];
      for (int v = 0; v < VECTORS; v++) x[v] = load(from + v * LANES);
      for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < VECTORS; v++) sums[r][v] = fused(all(weight[r]), x[v], sums[r][v]);
    }
    from = before;
    for (int k = 0; k < size; k++, from += PANEL, weight += ROWS) {
      lanes x[VECTORS];
      for (int v = 0; v < VECTORS; v++) x[v] = load(from + v * LANES);
      for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < VECTORS; v++) sums[r][v] = fused(all(weight[r]), x[v], sums[r][v]);
    }
    for (int u = 0; u < UNITS; u++)
      for (int v = 0; v < VECTORS; v++) {
        const long at = (long)(block * UNITS + u) * PANEL + v * LANES;
        const lanes one = all(1.0f), half = all(0.5f);
        const lanes i = tanh_of(sums[4 * u][v]), f = tanh_of(sums[4 * u + 1][v]);
        const lanes g = tanh_of(sums[4 * u + 2][v]), o = tanh_of(sums[4 * u + 3][v]);
        const lanes kept = half * fused(i + one, g, (f + one) * load(memory + at));
        store(memory + at, kept);
        store(after + at, half * (o + one) * tanh_of(kept));
      }
  }
}

extern "C" __attribute__((visibility("default"))) int spool_lstm_units() { return UNITS; }
extern "C" __attribute__((visibility("default"))) int spool_lstm_panel() { return PANEL; }

// The last output of each window. `inputs` is [steps, width, windows] with windows a multiple of PANEL, `counts`
// [windows] their steps, longest first; weights and bias of each layer follow each other. `room` holds 3 * layers *
// size * PANEL floats, `out` is [windows, size].
extern "C" __attribute__((visibility("default"))) void spool_lstm_windows(const float* inputs, const int* counts,
                                                                          const float* weights, const float* bias,
                                                                          int width, int size, int layers,
                                                                          int windows, float* room, float* out) {
  const long plane = (long)size * PANEL;
  for (int first = 0; first < windows; first += PANEL) {
    for (long i = 0; i < 3 * layers * plane; i++) room[i] = 0.0f;
    int active = PANEL;
    for (int t = 0; t < counts[first]; t++) {
      while (counts[first + active - 1] <= t) active--;
      const int vectors = (active + LANES - 1) / LANES;
      const float *entering = inputs + (long)t * width * windows + first, *weight = weights;
      long stride = windows;
      int wide = width;
      for (int layer = 0; layer < layers; layer++) {
        float* memory = room + 3 * layer * plane;
        float *before = memory + (1 + t % 2) * plane, *after = memory + (2 - t % 2) * plane;
        const float* own = bias + (long)layer * 4 * size;
        if (vectors == 3) step<3>(entering, stride, wide, size, weight, own, before, after, memory);
        else if (vectors == 2) step<2>(entering, stride, wide, size, weight, own, before, after, memory);
        else step<1>(entering, stride, wide, size, weight, own, before, after, memory);
        weight += (long)(wide + size) * 4 * size;
        entering = after;
        stride = PANEL;
        wide = size;
      }
      for (int column = 0; column < active; column++)
        if (counts[first + column] == t + 1)
          for (int unit = 0; unit < size; unit++)
            out[(long)(first + column) * size + unit] = entering[(long)unit * PANEL + column];
    }
  }
}
