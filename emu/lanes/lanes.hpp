// What generated models are made of: planes, moves of many planes, transposition, memories.
//
// A plane is one bit of every lane. Everything here is plain C++ on vectors that the compiler splits
// to what the processor has; where AVX-512 does something in one instruction, it is named.
//
// SUPERNODE_LANES says how many lanes there are: 64, 128, 256 or 512. Models of different numbers
// go into one engine, so all of this lives in a namespace of that number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512VBMI__) && defined(__GFNI__)
#include <immintrin.h>
#define SUPERNODE_AVX512 1
#endif

#define SUPERNODE_LANES_SPACE_(n) of_##n
#define SUPERNODE_LANES_SPACE(n) SUPERNODE_LANES_SPACE_(n)

namespace lanes {

// Transposes 64 × 64 bits: bit j of word i becomes bit i of word j.
void transpose(uint64_t* words);

inline namespace SUPERNODE_LANES_SPACE(SUPERNODE_LANES) {

inline constexpr unsigned count = SUPERNODE_LANES;
// Words of a plane: lanes 64 g to 64 g + 63 are its word g.
inline constexpr unsigned groups = count / 64;

#if SUPERNODE_LANES == 64
using Plane = uint64_t;
inline constexpr Plane none = 0, all = ~none;
#else
typedef uint64_t Plane __attribute__((vector_size(count / 8), may_alias));
inline constexpr Plane none = {}, all = ~none;
#endif

// 64 bytes of planes.
typedef uint64_t Planes __attribute__((vector_size(64), aligned(8), may_alias));
inline constexpr unsigned at_once = 64 / sizeof(Plane);

inline const uint64_t* words(const Plane* planes) {
    return reinterpret_cast<const uint64_t*>(planes);
}
inline uint64_t* words(Plane* planes) { return reinterpret_cast<uint64_t*>(planes); }

inline bool any(Plane plane) {
#if SUPERNODE_LANES == 64
    return plane;
#elif defined(SUPERNODE_AVX512) && SUPERNODE_LANES == 128
    return !_mm_testz_si128((__m128i)plane, (__m128i)plane);
#elif defined(SUPERNODE_AVX512) && SUPERNODE_LANES == 256
    return !_mm256_testz_si256((__m256i)plane, (__m256i)plane);
#elif defined(SUPERNODE_AVX512)
    return _mm512_test_epi64_mask((__m512i)plane, (__m512i)plane);
#else
    uint64_t sum = 0;
    for (unsigned group = 0; group < groups; ++group) sum |= words(&plane)[group];
    return sum;
#endif
}

// A function of two planes by its table.
template <unsigned Table, typename T>
inline T lut(T a, T b) {
    switch (Table & 0xf) {
        case 0x0: return a ^ a;
        case 0x1: return ~(a | b);
        case 0x2: return a & ~b;
        case 0x3: return ~b;
        case 0x4: return ~a & b;
        case 0x5: return ~a;
        case 0x6: return a ^ b;
        case 0x7: return ~(a & b);
        case 0x8: return a & b;
        case 0x9: return ~(a ^ b);
        case 0xa: return a;
        case 0xb: return a | ~b;
        case 0xc: return b;
        case 0xd: return ~a | b;
        case 0xe: return a | b;
        default: return ~(a ^ a);
    }
}

// A function of three planes: bit i of the table is its value where a, b and c are bits 0, 1 and 2
// of i.
template <unsigned Table>
inline Plane lut(Plane a, Plane b, Plane c) {
#if defined(SUPERNODE_AVX512) && SUPERNODE_LANES == 128
    return (Plane)_mm_ternarylogic_epi64((__m128i)c, (__m128i)b, (__m128i)a, Table);
#elif defined(SUPERNODE_AVX512) && SUPERNODE_LANES == 256
    return (Plane)_mm256_ternarylogic_epi64((__m256i)c, (__m256i)b, (__m256i)a, Table);
#elif defined(SUPERNODE_AVX512) && SUPERNODE_LANES == 512
    return (Plane)_mm512_ternarylogic_epi64((__m512i)c, (__m512i)b, (__m512i)a, Table);
#else
    constexpr unsigned low = Table & 0xf, high = Table >> 4;
    const Plane zero = lut<low>(a, b), one = lut<high>(a, b);
    if constexpr (low == high) return zero;
    if constexpr ((low ^ high) == 0xf) return zero ^ c;
    if constexpr (low == 0) return one & c;
    if constexpr (high == 0) return zero & ~c;
    if constexpr (low == 0xf) return one | ~c;
    if constexpr (high == 0xf) return zero | c;
    return zero ^ (c & (zero ^ one));
#endif
}

// Operands of a move: consecutive planes, their complements, or a constant.
struct Plain {
    const Plane* at;
    Planes many(unsigned k) const { return *reinterpret_cast<const Planes*>(at + k); }
    Plane one(unsigned k) const { return at[k]; }
};
struct Flipped {
    const Plane* at;
    Planes many(unsigned k) const { return ~*reinterpret_cast<const Planes*>(at + k); }
    Plane one(unsigned k) const { return ~at[k]; }
};
struct Zeros {
    Planes many(unsigned) const { return Planes{}; }
    Plane one(unsigned) const { return none; }
};
struct Ones {
    Planes many(unsigned) const { return ~Planes{}; }
    Plane one(unsigned) const { return all; }
};

inline Planes& many(Plane* at) { return *reinterpret_cast<Planes*>(at); }

template <typename T>
inline T blend(T cond, T then, T other) {
    return other ^ (cond & (then ^ other));
}
#ifdef SUPERNODE_AVX512
inline Planes blend(Planes cond, Planes then, Planes other) {
    return (Planes)_mm512_ternarylogic_epi64((__m512i)cond, (__m512i)then, (__m512i)other, 0xca);
}
#endif

// Runs over planes, 64 bytes at once as long as it can.
template <unsigned N, typename Many, typename One>
inline void over(Many wide, One single) {
    unsigned k = 0;
    for (; k + at_once <= N; k += at_once) wide(k);
    for (; k < N; ++k) single(k);
}

template <unsigned N, typename A>
inline void copy(Plane* out, A a) {
    over<N>([&](unsigned k) { many(out + k) = a.many(k); },
            [&](unsigned k) { out[k] = a.one(k); });
}

// out = cond ? then : other
template <unsigned N, typename A, typename B>
inline void pick(Plane* out, Plane cond, A then, B other) {
    Planes wide;
    for (unsigned k = 0; k < at_once; ++k)
        std::memcpy(reinterpret_cast<char*>(&wide) + k * sizeof cond, &cond, sizeof cond);
    over<N>([&](unsigned k) { many(out + k) = blend(wide, then.many(k), other.many(k)); },
            [&](unsigned k) { out[k] = blend(cond, then.one(k), other.one(k)); });
}

template <unsigned N, typename A, typename B>
inline void both(Plane* out, A a, B b) {
    over<N>([&](unsigned k) { many(out + k) = a.many(k) & b.many(k); },
            [&](unsigned k) { out[k] = a.one(k) & b.one(k); });
}

template <unsigned N, typename A, typename B>
inline void differ(Plane* out, A a, B b) {
    over<N>([&](unsigned k) { many(out + k) = a.many(k) ^ b.many(k); },
            [&](unsigned k) { out[k] = a.one(k) ^ b.one(k); });
}

// Up to eight planes to a byte per lane, and back.
inline void to_bytes(uint8_t* bytes, const Plane* planes, unsigned width) {
    const uint64_t* word = words(planes);
    for (unsigned group = 0; group < groups; ++group, ++word, bytes += 64) {
#ifdef SUPERNODE_AVX512
        __m512i sum = _mm512_setzero_si512();
        for (unsigned k = 0; k < width; ++k)
            sum = _mm512_mask_add_epi8(sum, word[k * groups], sum, _mm512_set1_epi8(char(1u << k)));
        _mm512_storeu_si512(bytes, sum);
#else
        for (unsigned part = 0; part < 8; ++part) {
            uint64_t sum = 0;
            for (unsigned k = 0; k < width; ++k) {
                // The bits of eight lanes, each at another place of its byte, go to the lowest.
                const uint64_t bits = word[k * groups] >> 8 * part & 0xff;
                const uint64_t apart = bits * 0x0101010101010101ull & 0x8040201008040201ull;
                sum |= (((apart & 0x7f7f7f7f7f7f7f7full) + 0x7f7f7f7f7f7f7f7full | apart) >> 7 &
                        0x0101010101010101ull)
                       << k;
            }
            std::memcpy(bytes + 8 * part, &sum, 8);
        }
#endif
    }
}

inline void from_bytes(Plane* planes, const uint8_t* bytes, unsigned width) {
    uint64_t* word = words(planes);
    for (unsigned group = 0; group < groups; ++group, ++word, bytes += 64) {
#ifdef SUPERNODE_AVX512
        const __m512i value = _mm512_loadu_si512(bytes);
        for (unsigned k = 0; k < width; ++k)
            word[k * groups] = _mm512_test_epi8_mask(value, _mm512_set1_epi8(char(1u << k)));
#else
        for (unsigned k = 0; k < width; ++k) word[k * groups] = 0;
        for (unsigned part = 0; part < 8; ++part) {
            uint64_t eight;
            std::memcpy(&eight, bytes + 8 * part, 8);
            for (unsigned k = 0; k < width; ++k)
                word[k * groups] |= ((eight >> k & 0x0101010101010101ull) * 0x0102040810204080ull >> 56)
                                    << 8 * part;
        }
#endif
    }
}

// Rows of at most 64 bits, one per lane, to planes and back.
template <unsigned Width>
inline void to_rows(uint64_t* rows, const Plane* planes) {
    static_assert(Width <= 64);
    if constexpr (Width <= 8) {
        uint8_t bytes[count];
        to_bytes(bytes, planes, Width);
        for (unsigned lane = 0; lane < count; ++lane) rows[lane] = bytes[lane];
    } else {
        for (unsigned group = 0; group < groups; ++group, rows += 64) {
            const uint64_t* word = words(planes) + group;
            for (unsigned k = 0; k < Width; ++k) rows[k] = word[k * groups];
            for (unsigned k = Width; k < 64; ++k) rows[k] = 0;
            transpose(rows);
        }
    }
}

template <unsigned Width>
inline void from_rows(Plane* planes, uint64_t* rows) {
    static_assert(Width <= 64);
    if constexpr (Width <= 8) {
        uint8_t bytes[count];
        for (unsigned lane = 0; lane < count; ++lane) bytes[lane] = uint8_t(rows[lane]);
        from_bytes(planes, bytes, Width);
    } else {
        for (unsigned group = 0; group < groups; ++group, rows += 64) {
            uint64_t* word = words(planes) + group;
            transpose(rows);
            for (unsigned k = 0; k < Width; ++k) word[k * groups] = rows[k];
        }
    }
}

// An index per lane.
template <unsigned Width>
inline void indices(uint16_t* index, const Plane* planes) {
    static_assert(Width <= 16);
    uint8_t low[count], high[count] = {};
    to_bytes(low, planes, Width < 8 ? Width : 8);
    if constexpr (Width > 8) to_bytes(high, planes + 8, Width - 8);
    for (unsigned lane = 0; lane < count; ++lane)
        index[lane] = uint16_t(low[lane] | high[lane] << 8);
}

// Calls action(lane) for each lane of a plane.
template <typename Action>
inline void each(Plane plane, Action action) {
    for (unsigned group = 0; group < groups; ++group)
        for (uint64_t rest = words(&plane)[group]; rest; rest &= rest - 1)
            action(64 * group + unsigned(__builtin_ctzll(rest)));
}

// A memory of every lane. Rows of a lane lie together, so that what one lane touches is one or two
// cache lines.
template <unsigned Width, unsigned Depth, unsigned Rows>
struct Memory {
    static constexpr unsigned parts = (Width + 63) / 64, last = Width - 64 * (parts - 1);
    static constexpr unsigned stride =
        Width <= 8 ? 1 : Width <= 16 ? 2 : Width <= 32 ? 4 : 8 * parts;
    static constexpr unsigned step = stride < 8 ? stride : 8;
    static constexpr unsigned address_bits = Rows <= 1 ? 0 : 32 - __builtin_clz(Rows - 1);

    uint8_t bytes[count][Rows * stride];

    void set(unsigned row, const uint64_t* value) {
        for (unsigned lane = 0; lane < count; ++lane)
            std::memcpy(&bytes[lane][row * stride], value, stride);
    }

    // Bits from `Start` on of the rows at `address` of these lanes, as planes; those of other lanes
    // are of no meaning.
    template <unsigned Start = 0>
    void read(Plane* out, const Plane* address, Plane which) const {
        uint16_t index[count];
        indices<address_bits>(index, address);
        if constexpr (Width <= 8) {
            uint8_t found[count] = {};
            each(which, [&](unsigned lane) { found[lane] = bytes[lane][index[lane]]; });
            from_bytes(out, found, Width);
        } else {
            uint64_t rows[parts - Start / 64][count];
            std::memset(rows, 0, stride < 8 ? sizeof rows : 0);
            each(which, [&](unsigned lane) {
                const uint8_t* row = &bytes[lane][index[lane] * stride] + Start / 8;
                for (unsigned part = 0; part < parts - Start / 64; ++part)
                    std::memcpy(&rows[part][lane], row + 8 * part, step);
            });
            for (unsigned part = 0; part + 1 < parts - Start / 64; ++part)
                from_rows<64>(out + 64 * part, rows[part]);
            from_rows<last>(out + 64 * (parts - 1) - Start, rows[parts - 1 - Start / 64]);
        }
    }

    template <unsigned Start = 0>
    void fetch(Plane* out, const Plane* address, Plane enable) const {
        Plane found[Width - Start];
        read<Start>(found, address, enable);
        pick<Width - Start>(out, enable, Plain{found}, Plain{out});
    }

    template <unsigned Bits, typename To>
    void fetch_rows(To to, const Plane* address, Plane enable) const {
        uint16_t index[count];
        indices<address_bits>(index, address);
        each(enable, [&](unsigned lane) {
            std::memcpy(to[lane], &bytes[lane][index[lane] * stride], Bits / 8);
        });
    }

    // Writes the bits from `Start` on.
    template <unsigned Start = 0>
    void write(const Plane* address, const Plane* data, Plane enable) {
        uint16_t index[count];
        indices<address_bits>(index, address);
        if constexpr (Width <= 8) {
            uint8_t value[count];
            to_bytes(value, data, Width);
            each(enable, [&](unsigned lane) {
                if (Depth == Rows || index[lane] < Depth) bytes[lane][index[lane]] = value[lane];
            });
        } else {
            constexpr unsigned here = parts - Start / 64;
            uint64_t rows[here][count];
            for (unsigned part = 0; part + 1 < here; ++part)
                to_rows<64>(rows[part], data + 64 * part);
            to_rows<last>(rows[here - 1], data + 64 * (here - 1));
            each(enable, [&](unsigned lane) {
                if (Depth != Rows && index[lane] >= Depth) return;
                uint8_t* row = &bytes[lane][index[lane] * stride] + Start / 8;
                for (unsigned part = 0; part < here; ++part)
                    std::memcpy(row + 8 * part, &rows[part][lane], step);
            });
        }
    }

    template <unsigned Bits, typename From>
    void write_rows(From from, const Plane* address, Plane enable) {
        uint16_t index[count];
        indices<address_bits>(index, address);
        each(enable, [&](unsigned lane) {
            if (Depth == Rows || index[lane] < Depth)
                std::memcpy(&bytes[lane][index[lane] * stride], from[lane], Bits / 8);
        });
    }

    // As write, with an enable per bit.
    void write_bits(const Plane* address, const Plane* data, const Plane* enable) {
        Plane which = none, old[Width], merged[Width];
        for (unsigned k = 0; k < Width; ++k) which |= enable[k];
        if (!any(which)) return;
        read(old, address, which);
        for (unsigned k = 0; k < Width; ++k) merged[k] = blend(enable[k], data[k], old[k]);
        write(address, merged, which);
    }
};

// The low bits of a product.
template <unsigned Width>
inline void multiply(Plane* out, const Plane* a, const Plane* b) {
    uint64_t x[count], y[count];
    to_rows<Width>(x, a);
    to_rows<Width>(y, b);
    for (unsigned lane = 0; lane < count; ++lane) x[lane] *= y[lane];
    from_rows<Width>(out, x);
}

// Pins: a value per lane, of a type as wide as it needs or of 32-bit words.

inline Plane load_bit(const uint8_t* pins) {
    Plane plane;
    from_bytes(&plane, pins, 1);
    return plane;
}

inline void store_bit(uint8_t* pins, Plane plane) { to_bytes(pins, &plane, 1); }

template <unsigned Width, typename T>
inline void load(Plane* planes, const T* pins) {
    uint64_t rows[count];
    for (unsigned lane = 0; lane < count; ++lane) rows[lane] = pins[lane];
    from_rows<Width>(planes, rows);
}

template <unsigned Width, typename T>
inline void store(T* pins, const Plane* planes) {
    uint64_t rows[count];
    to_rows<Width>(rows, planes);
    for (unsigned lane = 0; lane < count; ++lane) pins[lane] = T(rows[lane]);
}

// Rows of bytes, one per lane.
template <unsigned Pitch>
struct RowsOf {
    uint8_t* at;
    uint8_t* operator[](unsigned lane) const { return at + lane * Pitch; }
};

template <typename T, unsigned Words>
inline RowsOf<sizeof(T) * Words> rows_of(T (&rows)[count][Words]) {
    return {reinterpret_cast<uint8_t*>(rows)};
}

template <unsigned Bits, typename To, typename From>
inline void move_rows(To to, From from, Plane which) {
    each(which, [&](unsigned lane) { std::memcpy(to[lane], from[lane], Bits / 8); });
}

template <unsigned Bits, typename To>
inline void clear_rows(To to, Plane which) {
    each(which, [&](unsigned lane) { std::memset(to[lane], 0, Bits / 8); });
}

// 64 bits of each row, or fewer at its end, to planes and back, for the lanes that have a row; to
// planes, those of other lanes are zero.
template <unsigned Width = 64, typename Rows>
inline void load_column(Plane* planes, Rows rows, unsigned byte, Plane which) {
    uint64_t column[count] = {};
    each(which, [&](unsigned lane) { std::memcpy(&column[lane], rows[lane] + byte, 8); });
    from_rows<Width>(planes, column);
}

template <unsigned Width = 64, typename Rows>
inline void store_column(Rows rows, unsigned byte, const Plane* planes, Plane which) {
    uint64_t column[count];
    to_rows<Width>(column, planes);
    each(which, [&](unsigned lane) { std::memcpy(rows[lane] + byte, &column[lane], 8); });
}

// The same value in every lane.
template <unsigned Width>
inline void spread(Plane* planes, uint64_t value) {
    for (unsigned k = 0; k < Width; ++k) planes[k] = value >> k & 1 ? all : none;
}

// Plain data, all zero, in large pages where the system has them: an edge touches a few rows of the
// memories of each lane, more small pages than a processor remembers the places of.
template <typename T>
class Zeroed {
  public:
    Zeroed() : raw_{std::calloc(1, sizeof(T) + large)} {
        if (!raw_) throw std::bad_alloc{};
        const auto start = (reinterpret_cast<uintptr_t>(raw_) + large - 1) / large * large;
        at_ = reinterpret_cast<T*>(start);
#ifdef MADV_HUGEPAGE
        madvise(at_, sizeof(T) / large * large, MADV_HUGEPAGE);  // a wish: failing is no harm
#endif
    }
    ~Zeroed() { std::free(raw_); }
    Zeroed(const Zeroed&) = delete;
    Zeroed& operator=(const Zeroed&) = delete;
    T* get() const { return at_; }
    T& operator*() const { return *at_; }
    T* operator->() const { return at_; }

  private:
    static constexpr uintptr_t large = sizeof(T) < 2 << 20 ? 64 : 2 << 20;

    void* raw_;
    T* at_;
};

}  // namespace of_…
}  // namespace lanes
