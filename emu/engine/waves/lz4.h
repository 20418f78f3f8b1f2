// What Verilator's FST writer calls of LZ4, so that no library is needed: a compressor that writes
// the LZ4 block format.
//
// The format: sequences of a token (lengths of literals and match, 4 bits each, 15 meaning that
// bytes follow which add to it, up to one below 255), the literals, and a match as its distance in
// 16 bits. A match has at least 4 bytes; the last one begins 12 bytes before the end at the latest,
// and the last 5 bytes are literals.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

inline int LZ4_compressBound(int size) { return size + size / 255 + 16; }

// Compresses `size` bytes; `to` has room for LZ4_compressBound of them. Returns bytes written.
inline int LZ4_compress_default(const char* from, char* to, int size, int /*capacity*/) {
    constexpr int least_match = 4, match_end = 12, literal_end = 5, hash_bits = 12;
    const auto* input = reinterpret_cast<const uint8_t*>(from);
    auto* output = reinterpret_cast<uint8_t*>(to);
    std::vector<int> seen(1 << hash_bits, -1);  // last place of each hash of 4 bytes
    const auto four = [&](int at) {
        uint32_t value;
        std::memcpy(&value, input + at, 4);
        return value;
    };
    const auto length = [&](int rest) {
        for (; rest >= 255; rest -= 255) *output++ = 255;
        *output++ = rest;
    };
    int literals = 0;  // from here on nothing is written yet
    const auto sequence = [&](int end, int distance, int match) {
        const int count = end - literals, extra = match - least_match;
        uint8_t& token = *output++;
        token = (count < 15 ? count : 15) << 4;
        if (count >= 15) length(count - 15);
        std::memcpy(output, input + literals, count);
        output += count;
        literals = end + match;
        if (!match) return;
        *output++ = distance;
        *output++ = distance >> 8;
        token |= extra < 15 ? extra : 15;
        if (extra >= 15) length(extra - 15);
    };
    for (int at = 0; at <= size - match_end;) {
        const uint32_t value = four(at);
        int& place = seen[value * 2654435761u >> (32 - hash_bits)];
        const int before = place;
        place = at;
        if (before < 0 || at - before > 65535 || four(before) != value) {
            ++at;
            continue;
        }
        int match = least_match;
        while (at + match < size - literal_end && input[before + match] == input[at + match])
            ++match;
        sequence(at, at - before, match);
        at += match;
    }
    if (size) sequence(size, 0, 0);
    return output - reinterpret_cast<uint8_t*>(to);
}
