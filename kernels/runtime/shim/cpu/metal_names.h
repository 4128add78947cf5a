// Metal's names in C++17, so that the text MLX wraps round a kernel's body compiles for a CPU.
//   SIMD_W 1   the fast build: a simdgroup is one lane that holds all 32 slots; barriers and simd operations
//              are the identity; threads share the threadgroups.
//   SIMD_W 32  the checking build: each lane is a fiber, barriers and simd operations really meet, and lanes
//              that diverge are reported.
#pragma once
// Every header of the standard library comes before the qualifiers below: `thread` and `constant` break them.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
typedef unsigned long ulong;

#if SIMD_W != 1
#include "fibers.h"
#endif

#define SPOOL_INLINE inline __attribute__((always_inline))
#if SIMD_W == 1
#define SPOOL_KERNEL __attribute__((always_inline))
#else
#define SPOOL_KERNEL
#endif

// One memory, so no address spaces. Arrays in threadgroup memory are rewritten to SPOOL_THREADGROUP_ARRAY.
#define device
#define constant
#define thread
#define threadgroup
#define METAL_FUNC SPOOL_INLINE

struct uint2 {
  uint x, y;
};
struct uint3 {
  uint x, y, z;
};

#include "half.h"
#include "metal_math.h"
#include "atomics.h"
#if SIMD_W == 1
#include "one_lane.h"
#include "wide_slots.h"
#else
#include "fiber_simd.h"
#endif
using namespace metal;
