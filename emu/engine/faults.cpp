#include "faults.hpp"

#include <algorithm>

namespace supernode {

namespace {

// From [0, 1).
double uniform(uint64_t hash) { return std::ldexp(static_cast<double>(hash >> 11), -53); }

constexpr uint64_t step = 0x9e3779b97f4a7c15ull;

}  // namespace

BitErrors::BitErrors(const std::vector<Field>& fields, double rate, uint64_t burst, uint64_t seed)
    : seed_{mix(seed + step)}, phase_{mix(seed_ + step) % burst}, burst_{burst} {
    for (const Field& field : fields)
        for (unsigned bit = 0; bit < field.width; ++bit) bits_.push_back(field.first + bit);
    log_right_ = std::log1p(-rate);
    word_rate_ = -std::expm1(static_cast<double>(bits_.size()) * log_right_);
    const double below = std::ldexp(word_rate_, 64);
    below_ = below < std::ldexp(1.0, 64) ? static_cast<uint64_t>(below) : NEVER;
}

void BitErrors::flip(uint64_t t, uint32_t* word) const {
    uint64_t state = mix(seed_ ^ mix(t + step));
    // Right bits before the first error: geometric, cut off at the length of the word.
    const auto gap = [&](double share) {
        const double right = std::log1p(-share * uniform(state)) / log_right_;
        state = mix(state + step);
        return static_cast<size_t>(std::min(right, static_cast<double>(bits_.size())));
    };
    size_t at = std::min(gap(word_rate_), bits_.size() - 1);
    while (at < bits_.size()) {
        word[bits_[at] / 32] ^= 1u << bits_[at] % 32;
        at += 1 + gap(1.0);
    }
}

}  // namespace supernode
