// Rows times a matrix in 8-bit integers on an x86-64 CPU with VNNI: [rows, depth] x [depth, columns]. The weights lie in
// panels of PANEL columns, four of the depth side by side, as one instruction multiplies them.
// Sums are exact integers, and a row has a scale of its own: its bits do not depend on the rows beside it.
#include <immintrin.h>

#include <atomic>
#include <cmath>
#include <limits>

#ifdef __AVX512VNNI__
typedef __m512i lanes;
typedef __m512 floats;
static const int LANES = 16, AT_ONCE = 8, WIDE = 2;
static inline lanes zero() { return _mm512_setzero_si512(); }
static inline lanes load(const signed char* at) { return _mm512_loadu_si512(at); }
static inline lanes load(const int* at) { return _mm512_loadu_si512(at); }
static inline void store(int* at, lanes v) { _mm512_storeu_si512(at, v); }
static inline lanes all(int v) { return _mm512_set1_epi32(v); }
// GCC copies the sums of its builtin from register to register, at half the speed.
static inline lanes dot(lanes sum, lanes x, lanes weights) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(weights));
  return sum;
}
static inline floats wide(lanes v) { return _mm512_cvtepi32_ps(v); }
static inline floats load(const float* at) { return _mm512_loadu_ps(at); }
static inline void store(float* at, floats v) { _mm512_storeu_ps(at, v); }
static inline floats all(float v) { return _mm512_set1_ps(v); }
static inline floats fused(floats a, floats b, floats c) { return _mm512_fmadd_ps(a, b, c); }
static inline floats times(floats a, floats b) { return _mm512_mul_ps(a, b); }
static inline lanes minus(lanes a, lanes b) { return _mm512_sub_epi32(a, b); }
#else
typedef __m256i lanes;
typedef __m256 floats;
static const int LANES = 8, AT_ONCE = 4, WIDE = 2;
static inline lanes zero() { return _mm256_setzero_si256(); }
static inline lanes load(const signed char* at) { return _mm256_loadu_si256((const __m256i*)at); }
static inline lanes load(const int* at) { return _mm256_loadu_si256((const __m256i*)at); }
static inline void store(int* at, lanes v) { _mm256_storeu_si256((__m256i*)at, v); }
static inline lanes all(int v) { return _mm256_set1_epi32(v); }
static inline lanes dot(lanes sum, lanes x, lanes weights) { return _mm256_dpbusd_avx_epi32(sum, x, weights); }
static inline floats wide(lanes v) { return _mm256_cvtepi32_ps(v); }
static inline floats load(const float* at) { return _mm256_loadu_ps(at); }
static inline void store(float* at, floats v) { _mm256_storeu_ps(at, v); }
static inline floats all(float v) { return _mm256_set1_ps(v); }
static inline floats fused(floats a, floats b, floats c) { return _mm256_fmadd_ps(a, b, c); }
static inline floats times(floats a, floats b) { return _mm256_mul_ps(a, b); }
static inline lanes minus(lanes a, lanes b) { return _mm256_sub_epi32(a, b); }
#endif

static const int PANEL = WIDE * LANES;
static const int FOUR = 4;       // of the depth, which one instruction multiplies and adds
static const int ZERO = 128;     // what stands for 0 in a row: its numbers have no sign
static const float MOST = 127.0f;
static const float ROUNDING = 12582912.0f;      // 1.5 * 2^23: what is added to it is rounded to an integer
static const unsigned INFINITE = 0x7f800000u;  // the bits of infinity; those of NaN are more

typedef void (*ParallelFor)(int threads, void (*work)(void*), void* argument);

namespace {
struct Product {
  const float *x, *scale, *bias;
  const signed char* weights;
  const int* sums;
  float *out, *row_scale;
  unsigned char* row;
  int rows, depth, deep, columns, panels;
  std::atomic<int> next_row{0}, next{0};
};

// Numbers of a row as integers of -127 to 127, above ZERO. A row that is not finite has no scale: all of it becomes NaN.
void quantise(Product* all, int row) {
  const float* x = all->x + (long)row * all->depth;
  unsigned char* to = all->row + (long)row * all->deep;
  unsigned largest = 0;  // sizes are in the order of their bits
  for (int k = 0; k < all->depth; k++) {
    unsigned bits;
    __builtin_memcpy(&bits, x + k, sizeof bits);
    bits &= 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  float size;
  __builtin_memcpy(&size, &largest, sizeof size);
  const bool finite = largest < INFINITE;
  const float factor = finite && size > 0 ? MOST / size : 0;
  all->row_scale[row] = finite ? size / MOST : std::numeric_limits<float>::quiet_NaN();
  for (int k = 0; k < all->depth; k++) {
    const float rounded = std::fma(x[k], factor, ROUNDING + ZERO);
    unsigned bits;
    __builtin_memcpy(&bits, &rounded, sizeof bits);
    to[k] = (unsigned char)bits;
  }
  for (int k = all->depth; k < all->deep; k++) to[k] = ZERO;
}

template <int ROWS>
inline void multiply(const Product& all, int row, int panel) {
  lanes sums[ROWS][WIDE];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
    for (int w = 0; w < WIDE; w++) sums[r][w] = zero();
  const int deep = all.deep, first = panel * PANEL, columns = all.columns - first;
  const signed char* weights = all.weights + (long)panel * deep * PANEL;
  const unsigned char* x = all.row + (long)row * deep;
  for (int k = 0; k < deep; k += FOUR, weights += FOUR * PANEL) {
    lanes own[WIDE];
#pragma GCC unroll 4  // early, so that the sums stay in registers
    for (int w = 0; w < WIDE; w++) own[w] = load(weights + w * FOUR * LANES);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
      int four;
      __builtin_memcpy(&four, x + (long)r * deep + k, FOUR);
      const lanes v = ::all(four);
#pragma GCC unroll 4
      for (int w = 0; w < WIDE; w++) sums[r][w] = dot(sums[r][w], v, own[w]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) {
    float edge[PANEL];
    float* out = all.out + (long)(row + r) * all.columns + first;
    float* to = columns < PANEL ? edge : out;
#pragma GCC unroll 4
    for (int w = 0; w < WIDE; w++) {
      const int at = first + w * LANES;
      const floats scale = times(load(all.scale + at), ::all(all.row_scale[row + r]));
      store(to + w * LANES, fused(wide(minus(sums[r][w], load(all.sums + at))), scale, load(all.bias + at)));
    }
    for (int c = 0; c < columns && columns < PANEL; c++) out[c] = edge[c];
  }
}

template <int ROWS = AT_ONCE>
inline void multiply_rows(int rows, const Product& all, int row, int panel) {
  if (rows == ROWS) multiply<ROWS>(all, row, panel);
  else if constexpr (ROWS > 1) multiply_rows<ROWS - 1>(rows, all, row, panel);
}

void quantise_rows(void* argument) {
  Product* all = (Product*)argument;
  for (int row; (row = all->next_row.fetch_add(1)) < all->rows;) quantise(all, row);
}

void take_panels(void* argument) {
  Product* all = (Product*)argument;
  const int blocks = (all->rows + AT_ONCE - 1) / AT_ONCE;
  for (int panel; (panel = all->next.fetch_add(1)) < all->panels;)
    for (int block = 0; block < blocks; block++) {
      const int row = (long)block * all->rows / blocks, next = (long)(block + 1) * all->rows / blocks;
      multiply_rows(next - row, *all, row, panel);
    }
}
}  // namespace

extern "C" __attribute__((visibility("default"))) int spool_int8_products_panel() { return PANEL; }

// out = x * weights * scale + bias. `weights` is [panels, deep / 4, PANEL, 4], deep the depth up to a multiple of 4;
// `scale`, `bias` and `sums`, 128 times the sum of each column's integers, [panels * PANEL]. Room for the rows:
// `row` [rows, deep] and `row_scale` [rows].
extern "C" __attribute__((visibility("default"))) void spool_int8_products(
    const float* x, const signed char* weights, const int* sums, const float* scale, const float* bias, float* out,
    unsigned char* row, float* row_scale, int rows, int depth, int columns, int threads, ParallelFor parallel_for) {
  Product product;
  product.x = x;
  product.weights = weights;
  product.sums = sums;
  product.scale = scale;
  product.bias = bias;
  product.out = out;
  product.row = row;
  product.row_scale = row_scale;
  product.rows = rows;
  product.depth = depth;
  product.deep = (depth + FOUR - 1) / FOUR * FOUR;
  product.columns = columns;
  product.panels = (columns + PANEL - 1) / PANEL;
  if (threads > 1) {
    parallel_for(threads, quantise_rows, &product);
    parallel_for(threads, take_panels, &product);
  } else {
    quantise_rows(&product);
    take_panels(&product);
  }
}
