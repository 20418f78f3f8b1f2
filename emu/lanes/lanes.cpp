#define SUPERNODE_LANES 64
#include "lanes.hpp"

namespace lanes {

#ifdef SUPERNODE_AVX512

namespace {

// 8 × 8 words of 64 bits, one row per register.
inline void transpose_words(__m512i* r) {
    __m512i a[8], b[8];
    for (unsigned k = 0; k < 4; ++k) {
        a[2 * k] = _mm512_unpacklo_epi64(r[2 * k], r[2 * k + 1]);
        a[2 * k + 1] = _mm512_unpackhi_epi64(r[2 * k], r[2 * k + 1]);
    }
    for (unsigned half = 0; half < 2; ++half) {
        for (unsigned k = 0; k < 2; ++k) {
            const __m512i x = a[4 * half + k], y = a[4 * half + 2 + k];
            b[4 * half + k] = _mm512_permutex2var_epi64(
                x, _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), y);
            b[4 * half + 2 + k] = _mm512_permutex2var_epi64(
                x, _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15), y);
        }
    }
    for (unsigned k = 0; k < 4; ++k) {
        r[k] = _mm512_permutex2var_epi64(b[k], _mm512_setr_epi64(0, 1, 2, 3, 8, 9, 10, 11),
                                         b[4 + k]);
        r[4 + k] = _mm512_permutex2var_epi64(b[k], _mm512_setr_epi64(4, 5, 6, 7, 12, 13, 14, 15),
                                             b[4 + k]);
    }
}

}  // namespace

void transpose(uint64_t* words) {
    struct Order {
        alignas(64) uint8_t at[64];
    };
    // 8 × 8 bytes transposed, and the same with the rows in reverse.
    static constexpr Order turned = [] {
        Order order{};
        for (unsigned k = 0; k < 64; ++k) order.at[k] = uint8_t(k % 8 * 8 + k / 8);
        return order;
    }();
    static constexpr Order reversed = [] {
        Order order{};
        for (unsigned k = 0; k < 64; ++k) order.at[k] = uint8_t((7 - k % 8) * 8 + k / 8);
        return order;
    }();
    const __m512i turn = _mm512_load_si512(turned.at), reverse = _mm512_load_si512(reversed.at);
    // As the left factor of 8 × 8 bits, rows in reverse, it gives the right one transposed.
    const __m512i unit = _mm512_set1_epi64(0x8040201008040201ll);
    __m512i r[8];
    for (unsigned k = 0; k < 8; ++k) {
        const __m512i rows = _mm512_loadu_si512(words + 8 * k);
        // Word b: byte b of eight rows, then bit by bit.
        r[k] = _mm512_gf2p8affine_epi64_epi8(unit, _mm512_permutexvar_epi8(reverse, rows), 0);
    }
    transpose_words(r);
    for (unsigned k = 0; k < 8; ++k)
        _mm512_storeu_si512(words + 8 * k, _mm512_permutexvar_epi8(turn, r[k]));
}

#else

void transpose(uint64_t* words) {
    static constexpr uint64_t masks[] = {0x00000000ffffffffull, 0x0000ffff0000ffffull,
                                         0x00ff00ff00ff00ffull, 0x0f0f0f0f0f0f0f0full,
                                         0x3333333333333333ull, 0x5555555555555555ull};
    // Blocks of halving size are swapped across the diagonal.
    for (unsigned step = 32, level = 0; step; step >>= 1, ++level)
        for (unsigned base = 0; base < 64; base += 2 * step)
            for (unsigned k = base; k < base + step; ++k) {
                const uint64_t swap = (words[k] >> step ^ words[k + step]) & masks[level];
                words[k] ^= swap << step;
                words[k + step] ^= swap;
            }
}

#endif

}  // namespace lanes
