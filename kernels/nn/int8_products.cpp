// Rows times a matrix in 8-bit integers on an x86-64 CPU with VNNI: [rows, depth] x [depth, columns]. The weights lie in
// panels of PANEL columns, four of the depth side by side, as one instruction multiplies them; where the CPU has AMX, its
// tiles take the same panels. Sums are exact integers, and a row has a scale of its own: its bits depend neither on the
// rows beside it nor on the instructions.
#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <new>

#if defined(__AMX_INT8__) && defined(__AVX512VNNI__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#define TILES 1
#else
#define TILES 0
#endif

#ifdef __AVX512VNNI__
typedef __m512i lanes;
typedef __m512 floats;
static const int LANES = 16, AT_ONCE = 8, WIDE = 2;
static inline lanes zero() { return _mm512_setzero_si512(); }
static inline lanes load(const signed char* at) { return _mm512_loadu_si512(at); }
static inline lanes load(const int* at) { return _mm512_loadu_si512(at); }
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

static const int TILE = 16;          // rows of a tile, and columns of its sums
static const int TILE_DEPTH = 64;    // of the depth, in one row of a tile
static const int AT_HAND = 1 << 20;  // bytes of rows that stay in a core's cache while all panels pass

typedef void (*ParallelFor)(int threads, void (*work)(void*), void* argument);

namespace {
struct Product {
  const float *x, *scale, *bias;
  const signed char* weights;
  const int* sums;
  float *out, *row_scale;
  unsigned char* row;
  int rows, depth, deep, columns, panels;
  std::atomic<int> next_row, next;
};

// Whether the CPU has tiles and the system lets this process use them: it asks once.
bool has_tiles() {
#if TILES
  const int request = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool granted = syscall(SYS_arch_prctl, request, tile_data) == 0;
  return granted;
#else
  return false;
#endif
}

int depth_step() { return has_tiles() ? TILE_DEPTH : FOUR; }
int padded(int size, int step) { return (size + step - 1) / step * step; }

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

// What the sums of one row and panel stand for.
inline void write(const Product& all, int row, int panel, const lanes (&sums)[WIDE]) {
  const int first = panel * PANEL, columns = all.columns - first;
  float edge[PANEL];
  float* out = all.out + (long)row * all.columns + first;
  float* to = columns < PANEL ? edge : out;
#pragma GCC unroll 4
  for (int w = 0; w < WIDE; w++) {
    const int at = first + w * LANES;
    const floats scale = times(load(all.scale + at), ::all(all.row_scale[row]));
    store(to + w * LANES, fused(wide(minus(sums[w], load(all.sums + at))), scale, load(all.bias + at)));
  }
  for (int c = 0; c < columns && columns < PANEL; c++) out[c] = edge[c];
}

template <int ROWS>
inline void multiply(const Product& all, int row, int panel) {
  lanes sums[ROWS][WIDE];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 4
    for (int w = 0; w < WIDE; w++) sums[r][w] = zero();
  const int deep = all.deep;
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
  for (int r = 0; r < ROWS; r++) write(all, row + r, panel, sums[r]);
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

#if TILES
// Two tiles of rows by the two of a panel. The sums of all four are in tiles 0 to 3.
template <int HIGH>
inline void multiply_tiles(const Product& all, int row, int panel) {
  const long deep = all.deep;
  const signed char* weights = all.weights + panel * deep * PANEL;
  const unsigned char* x = all.row + row * deep;
  const int stride = FOUR * PANEL;
  _tile_zero(0);
  _tile_zero(1);
  if (HIGH > 1) _tile_zero(2);
  if (HIGH > 1) _tile_zero(3);
  for (long k = 0; k < deep; k += TILE_DEPTH) {
    const signed char* own = weights + k * PANEL;
    _tile_loadd(4, x + k, deep);
    _tile_loadd(6, own, stride);
    _tile_loadd(7, own + FOUR * LANES, stride);
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    if (HIGH > 1) {
      _tile_loadd(5, x + TILE * deep + k, deep);
      _tile_dpbusd(2, 5, 6);
      _tile_dpbusd(3, 5, 7);
    }
  }
  alignas(64) int sums[HIGH * TILE][PANEL];
  _tile_stored(0, sums[0], sizeof sums[0]);
  _tile_stored(1, sums[0] + LANES, sizeof sums[0]);
  if (HIGH > 1) _tile_stored(2, sums[TILE * (HIGH - 1)], sizeof sums[0]);
  if (HIGH > 1) _tile_stored(3, sums[TILE * (HIGH - 1)] + LANES, sizeof sums[0]);
  const int rows = std::min(HIGH * TILE, all.rows - row);
  for (int r = 0; r < rows; r++) {
    const lanes both[WIDE] = {load(sums[r]), load(sums[r] + LANES)};
    write(all, row + r, panel, both);
  }
}

void take_tiles(void* argument) {
  Product* all = (Product*)argument;
  struct {
    unsigned char palette = 1, start = 0, reserved[14] = {};
    unsigned short bytes[16] = {};
    unsigned char rows[16] = {};
  } sizes;
  for (int tile = 0; tile < 8; tile++) sizes.bytes[tile] = TILE_DEPTH, sizes.rows[tile] = TILE;
  _tile_loadconfig(&sizes);
  for (int panel; (panel = all->next.fetch_add(1)) < all->panels;)
    for (int row = 0; row < all->rows; row += 2 * TILE)
      if (all->rows - row > TILE) multiply_tiles<2>(*all, row, panel);
      else multiply_tiles<1>(*all, row, panel);
  _tile_release();
}
#endif

void take_panels(void* argument) {
#if TILES
  if (has_tiles()) return take_tiles(argument);
#endif
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

// What the depth of the weights is padded to a multiple of.
extern "C" __attribute__((visibility("default"))) int spool_int8_products_depth() { return depth_step(); }

// out = x * weights * scale + bias. `weights` is [panels, deep / 4, PANEL, 4], deep the padded depth; `scale`, `bias` and
// `sums`, 128 times the sum of each column's integers, [panels * PANEL].
extern "C" __attribute__((visibility("default"))) void spool_int8_products(
    const float* x, const signed char* weights, const int* sums, const float* scale, const float* bias, float* out,
    int rows, int depth, int columns, int threads, ParallelFor parallel_for) {
  Product product;
  product.weights = weights;
  product.sums = sums;
  product.scale = scale;
  product.bias = bias;
  product.depth = depth;
  product.deep = padded(depth, depth_step());
  product.columns = columns;
  product.panels = padded(columns, PANEL) / PANEL;
  const int most = padded(std::max(AT_HAND / product.deep, 1), 2 * TILE), room = padded(std::min(rows, most), 2 * TILE);
  // Rows of a tile beyond the last one are multiplied, and written nowhere.
  struct Free {
    void operator()(unsigned char* at) const { ::operator delete[](at, std::align_val_t(64)); }
  };
  const std::unique_ptr<unsigned char[], Free> row(new (std::align_val_t(64)) unsigned char[(long)room * product.deep]);
  const std::unique_ptr<float[]> row_scale(new float[room]);
  product.row = row.get();
  product.row_scale = row_scale.get();
  for (int first = 0; first < rows; first += most) {
    product.x = x + (long)first * depth;
    product.out = out + (long)first * columns;
    product.rows = std::min(most, rows - first);
    product.next_row = product.next = 0;
    if (threads > 1) {
      parallel_for(threads, quantise_rows, &product);
      parallel_for(threads, take_panels, &product);
    } else {
      quantise_rows(&product);
      take_panels(&product);
    }
  }
}
