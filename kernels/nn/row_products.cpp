// Few rows times a matrix on an x86-64 CPU: [rows, depth] x [depth, columns]. The weights lie in panels of PANEL
// columns, in the order in which they are read, as halves or floats; a panel is read from memory once for all rows.
// Each number is one sum over the depth in its order: a row's bits do not depend on the rows beside it.
#include <immintrin.h>

#include <atomic>

#ifdef __AVX512F__
typedef __m512 lanes;
static const int LANES = 16, AT_ONCE = 12;
static inline lanes load(const float* at) { return _mm512_loadu_ps(at); }
static inline lanes load(const unsigned short* at) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)at)); }
static inline void store(float* at, lanes v) { _mm512_storeu_ps(at, v); }
static inline lanes all(float v) { return _mm512_set1_ps(v); }
static inline lanes fused(lanes a, lanes b, lanes c) { return _mm512_fmadd_ps(a, b, c); }
#else
typedef __m256 lanes;
static const int LANES = 8, AT_ONCE = 6;
static inline lanes load(const float* at) { return _mm256_loadu_ps(at); }
static inline lanes load(const unsigned short* at) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)at)); }
static inline void store(float* at, lanes v) { _mm256_storeu_ps(at, v); }
static inline lanes all(float v) { return _mm256_set1_ps(v); }
static inline lanes fused(lanes a, lanes b, lanes c) { return _mm256_fmadd_ps(a, b, c); }
#endif

static const int PANEL = 2 * LANES;
static const int AHEAD = 1024;  // bytes of weights that are asked for before they are needed

typedef void (*ParallelFor)(int threads, void (*work)(void*), void* argument);

namespace {
struct Product {
  const float *x, *scale, *bias;
  const void* weights;
  float* out;
  int rows, depth, columns, panels;
  bool halves;
  std::atomic<int> next{0};
};

// ROWS rows of a panel. `scale` and `bias` are the panel's own; `columns` of it are written.
template <int ROWS, class W>
inline void multiply(const float* x, long depth, const W* weights, const float* scale, const float* bias, float* out,
                     long stride, int columns) {
  lanes sums[ROWS][2];
  for (int r = 0; r < ROWS; r++) sums[r][0] = sums[r][1] = all(0.0f);
  for (long k = 0; k < depth; k++, weights += PANEL) {
    _mm_prefetch((const char*)weights + AHEAD, _MM_HINT_T0);
    if (sizeof(W) * PANEL > 64) _mm_prefetch((const char*)weights + AHEAD + 64, _MM_HINT_T0);
    const lanes low = load(weights), high = load(weights + LANES);
    for (int r = 0; r < ROWS; r++) {
      const lanes v = all(x[r * depth + k]);
      sums[r][0] = fused(v, low, sums[r][0]);
      sums[r][1] = fused(v, high, sums[r][1]);
    }
  }
  for (int r = 0; r < ROWS; r++) {
    float row[PANEL];
    float* to = columns == PANEL ? out + r * stride : row;
    for (int half = 0; half < 2; half++)
      store(to + half * LANES, fused(sums[r][half], load(scale + half * LANES), load(bias + half * LANES)));
    if (columns < PANEL)
      for (int c = 0; c < columns; c++) out[r * stride + c] = row[c];
  }
}

template <class W, int ROWS = AT_ONCE>
inline void multiply_rows(int rows, const float* x, long depth, const W* weights, const float* scale, const float* bias,
                          float* out, long stride, int columns) {
  if (rows == ROWS)
    multiply<ROWS>(x, depth, weights, scale, bias, out, stride, columns);
  else if constexpr (ROWS > 1)
    multiply_rows<W, ROWS - 1>(rows, x, depth, weights, scale, bias, out, stride, columns);
}

template <class W>
void take_panels(Product* all) {
  const int blocks = (all->rows + AT_ONCE - 1) / AT_ONCE;
  for (int panel; (panel = all->next.fetch_add(1)) < all->panels;) {
    const W* weights = (const W*)all->weights + (long)panel * all->depth * PANEL;
    const int first = panel * PANEL, left = all->columns - first;
    for (int block = 0; block < blocks; block++) {
      const int from = block * all->rows / blocks, to = (block + 1) * all->rows / blocks;
      multiply_rows<W>(to - from, all->x + (long)from * all->depth, all->depth, weights, all->scale + first,
                       all->bias + first, all->out + (long)from * all->columns + first, all->columns,
                       left < PANEL ? left : PANEL);
    }
  }
}

void work(void* argument) {
  Product* all = (Product*)argument;
  if (all->halves) take_panels<unsigned short>(all);
  else take_panels<float>(all);
}
}  // namespace

extern "C" __attribute__((visibility("default"))) int spool_row_products_panel() { return PANEL; }

// out = x * weights * scale + bias. `weights` is [panels, depth, PANEL], `scale` and `bias` [panels * PANEL].
extern "C" __attribute__((visibility("default"))) void spool_row_products(
    const float* x, const void* weights, const float* scale, const float* bias, float* out, int rows, int depth,
    int columns, int halves, int threads, ParallelFor parallel_for) {
  Product product;
  product.x = x;
  product.scale = scale;
  product.bias = bias;
  product.weights = weights;
  product.out = out;
  product.rows = rows;
  product.depth = depth;
  product.columns = columns;
  product.panels = (columns + PANEL - 1) / PANEL;
  product.halves = halves;
  if (threads > 1) parallel_for(threads, work, &product);
  else work(&product);
}
