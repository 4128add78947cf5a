// 16-bit floats that are stored as such and computed in float, as on a GPU.
#pragma once

struct half {
  uint16_t bits;
  half() = default;
  template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
  SPOOL_INLINE half(T value) {
    _Float16 h = (_Float16)(float)value;
    memcpy(&bits, &h, 2);
  }
  SPOOL_INLINE operator float() const {
    _Float16 h;
    memcpy(&h, &bits, 2);
    return (float)h;
  }
};

struct bfloat {
  uint16_t bits;
  bfloat() = default;
  template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
  SPOOL_INLINE bfloat(T value) {
    float f = (float)value;
    uint32_t b;
    memcpy(&b, &f, 4);
    // Round to nearest, ties to even; a NaN stays one whatever its low bits are.
    bits = f != f ? 0x7fc0 : (uint16_t)((b + 0x7fff + ((b >> 16) & 1)) >> 16);
  }
  SPOOL_INLINE operator float() const {
    uint32_t b = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &b, 4);
    return f;
  }
};
typedef half float16_t;
typedef bfloat bfloat16_t;
