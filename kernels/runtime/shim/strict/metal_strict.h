// For clang alone, to check syntax: Metal's address spaces as real types of C++, so that what Metal refuses for its
// qualifiers is refused on Linux too. Declares what our kernels use of the language; nothing here is ever run.
#pragma once
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
typedef unsigned long ulong;
typedef unsigned long size_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef _Float16 half;
typedef _Float16 float16_t;
typedef __bf16 bfloat;
typedef __bf16 bfloat16_t;

#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#define thread
#define double struct metal_has_no_double
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define METAL_FUNC inline

struct uint2 {
  uint x, y;
};
struct uint3 {
  uint x, y, z;
};

namespace metal {
enum class mem_flags : unsigned { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);

// As in Metal: no 64-bit types, no bool and no bfloat in simd operations.
#define STRICT_SIMD1(name) \
  float name(float);       \
  half name(half);         \
  int name(int);           \
  uint name(uint);         \
  short name(short);       \
  ushort name(ushort);
STRICT_SIMD1(simd_sum)
STRICT_SIMD1(simd_max)
STRICT_SIMD1(simd_min)
STRICT_SIMD1(simd_prefix_inclusive_sum)
STRICT_SIMD1(simd_prefix_exclusive_sum)
STRICT_SIMD1(simd_broadcast_first)
int simd_or(int);
uint simd_or(uint);
int simd_and(int);
uint simd_and(uint);
bool simd_any(bool);
bool simd_all(bool);

#define STRICT_SIMD2(name)    \
  float name(float, ushort);  \
  half name(half, ushort);    \
  int name(int, ushort);      \
  uint name(uint, ushort);    \
  short name(short, ushort);  \
  ushort name(ushort, ushort);
STRICT_SIMD2(simd_shuffle)
STRICT_SIMD2(simd_shuffle_xor)
STRICT_SIMD2(simd_shuffle_up)
STRICT_SIMD2(simd_shuffle_down)
STRICT_SIMD2(simd_broadcast)

// Metal's 32-bit atomics; like those, a pointer to plain integers becomes one by a cast.
enum memory_order { memory_order_relaxed };
struct atomic_int;
#define STRICT_ATOMICS(space)                                                            \
  int atomic_load_explicit(const volatile space atomic_int*, memory_order);              \
  void atomic_store_explicit(volatile space atomic_int*, int, memory_order);             \
  int atomic_exchange_explicit(volatile space atomic_int*, int, memory_order);           \
  bool atomic_compare_exchange_weak_explicit(volatile space atomic_int*, thread int*, int, memory_order, memory_order); \
  int atomic_fetch_min_explicit(volatile space atomic_int*, int, memory_order);          \
  int atomic_fetch_max_explicit(volatile space atomic_int*, int, memory_order);          \
  int atomic_fetch_add_explicit(volatile space atomic_int*, int, memory_order);
STRICT_ATOMICS(device)
STRICT_ATOMICS(threadgroup)

#define STRICT_MATH1(name) \
  float name(float);       \
  half name(half);
#define STRICT_MATH    \
  STRICT_MATH1(exp)    \
  STRICT_MATH1(log)    \
  STRICT_MATH1(exp2)   \
  STRICT_MATH1(log2)   \
  STRICT_MATH1(sqrt)   \
  STRICT_MATH1(rsqrt)  \
  STRICT_MATH1(tanh)   \
  STRICT_MATH1(floor)  \
  STRICT_MATH1(ceil)   \
  STRICT_MATH1(rint)   \
  STRICT_MATH1(fabs)
STRICT_MATH
namespace precise {
STRICT_MATH
}
float fma(float, float, float);
bool isnan(float);
int abs(int);
template <class T>
T max(T, T);
template <class T>
T min(T, T);
template <class To, class From>
To as_type(From);
}  // namespace metal
using namespace metal;
