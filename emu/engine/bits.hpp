// Bit fields of packed words, and the hash behind digests and random stalls.
#pragma once

#include <cstdint>
#include <cstring>

#include "pins.hpp"

namespace supernode {

inline constexpr uint64_t NEVER = ~uint64_t{0};

inline uint64_t low_bits(unsigned width) {
    return width >= 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
}

// A field of at most 64 bits, anywhere in a word.
inline uint64_t extract(const uint32_t* word, Field field) {
    const unsigned at = field.first / 32, shift = field.first % 32, end = shift + field.width;
    uint64_t value = word[at];
    if (end > 32) value |= uint64_t{word[at + 1]} << 32;
    value >>= shift;
    if (end > 64) value |= uint64_t{word[at + 2]} << (64 - shift);
    return value & low_bits(field.width);
}

inline uint64_t extract(uint64_t word, Field field) {
    return word >> field.first & low_bits(field.width);
}

// Copies 32-bit words: so few that a call would cost more.
inline void copy_words(void* to, const void* from, unsigned words) {
    auto* target = static_cast<uint8_t*>(to);
    auto* source = static_cast<const uint8_t*>(from);
    for (; words >= 4; words -= 4, target += 16, source += 16) std::memcpy(target, source, 16);
    if (words & 2) std::memcpy(target, source, 8), target += 8, source += 8;
    if (words & 1) std::memcpy(target, source, 4);
}

inline uint64_t mix(uint64_t value) {
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ value >> 27) * 0x94d049bb133111ebull;
    return value ^ value >> 31;
}

inline uint64_t digest(const uint8_t* data, unsigned bytes, uint64_t seed = 0) {
    uint64_t hash = mix(seed + bytes);
    for (unsigned at = 0; at < bytes; at += 8) {
        uint64_t part = 0;
        std::memcpy(&part, data + at, bytes - at < 8 ? bytes - at : 8);
        hash = mix(hash ^ part) + 0x9e3779b97f4a7c15ull;
    }
    return hash;
}

}  // namespace supernode
