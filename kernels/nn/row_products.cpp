// Rows times a matrix on an x86-64 CPU: [rows, depth] x [depth, columns]. The weights lie in panels of PANEL columns,
// in the order in which they are read, as halves or floats; a panel is read from memory once for all rows.
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
static const int DEEP = 256;    // of a panel, so much is multiplied with all rows while it lies in the nearest cache

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

// What a piece of a panel is multiplied with, and where it goes: `begins` and `ends` say whether the piece holds the
// first and the last of the depth. Between pieces the sums lie in `out`.
struct Piece {
  long depth, stride;
  int many, columns;
  bool begins, ends;
  const float *scale, *bias;
};

template <class W>
inline void ask_ahead(const W* weights) {
  _mm_prefetch((const char*)weights + AHEAD, _MM_HINT_T0);
  if (sizeof(W) * PANEL > 64) _mm_prefetch((const char*)weights + AHEAD + 64, _MM_HINT_T0);
}

// ROWS rows of a piece. Where KEEP, the weights are left in `room` as floats, for the rows that come after.
template <int ROWS, bool KEEP, class W>
inline void multiply(const Piece& piece, const float* x, const W* weights, float* room, float* out) {
  lanes sums[ROWS][2];
  for (int r = 0; r < ROWS; r++)
    for (int half = 0; half < 2; half++)
      sums[r][half] = piece.begins ? all(0.0f) : load(out + r * piece.stride + half * LANES);
  const long depth = piece.depth;
  for (int k = 0; k < piece.many; k++, weights += PANEL) {
    ask_ahead(weights);
    const lanes low = load(weights), high = load(weights + LANES);
    if (KEEP) {
      store(room + (long)k * PANEL, low);
      store(room + (long)k * PANEL + LANES, high);
    }
    for (int r = 0; r < ROWS; r++) {
      const lanes v = all(x[r * depth + k]);
      sums[r][0] = fused(v, low, sums[r][0]);
      sums[r][1] = fused(v, high, sums[r][1]);
    }
  }
  for (int r = 0; r < ROWS; r++) {
    float row[PANEL];
    float* to = piece.columns == PANEL ? out + r * piece.stride : row;
    for (int half = 0; half < 2; half++) {
      const lanes sum = sums[r][half];
      store(to + half * LANES,
            piece.ends ? fused(sum, load(piece.scale + half * LANES), load(piece.bias + half * LANES)) : sum);
    }
    if (piece.columns < PANEL)
      for (int c = 0; c < piece.columns; c++) out[r * piece.stride + c] = row[c];
  }
}

template <bool KEEP, class W, int ROWS = AT_ONCE>
inline void multiply_rows(int rows, const Piece& piece, const float* x, const W* weights, float* room, float* out) {
  if (rows == ROWS)
    multiply<ROWS, KEEP>(piece, x, weights, room, out);
  else if constexpr (ROWS > 1)
    multiply_rows<KEEP, W, ROWS - 1>(rows, piece, x, weights, room, out);
}

template <class W>
void take_panels(Product* all) {
  alignas(64) float room[DEEP * PANEL];
  const int rows = all->rows, depth = all->depth, blocks = (rows + AT_ONCE - 1) / AT_ONCE;
  for (int panel; (panel = all->next.fetch_add(1)) < all->panels;) {
    const W* weights = (const W*)all->weights + (long)panel * depth * PANEL;
    const int first = panel * PANEL, left = all->columns - first;
    // Sums of a panel that is not full have no place between pieces.
    const bool whole = blocks == 1 || left < PANEL;
    for (int from = 0, many; from < depth; from += many) {
      many = whole ? depth : depth - from < DEEP ? depth - from : DEEP;
      const Piece piece = {depth, all->columns, many, left < PANEL ? left : PANEL, from == 0, from + many == depth,
                           all->scale + first, all->bias + first};
      const W* own = weights + (long)from * PANEL;
      for (int block = 0; block < blocks; block++) {
        const int row = block * rows / blocks, next = (block + 1) * rows / blocks;
        const float* x = all->x + (long)row * depth + from;
        float* out = all->out + (long)row * all->columns + first;
        if (whole || sizeof(W) == sizeof(float))
          multiply_rows<false>(next - row, piece, x, own, room, out);
        else if (block == 0)
          multiply_rows<true>(next - row, piece, x, own, room, out);
        else
          multiply_rows<false>(next - row, piece, x, (const float*)room, room, out);
      }
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
