// Words on their way to nodes that another thread or another process runs.
//
// A word that leaves within a window arrives after it, so its receiver need not have it before the
// window has ended everywhere. Until then it lies here, where only the sender's thread writes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bits.hpp"

namespace supernode {

// Records of a link's number, an arrival and a word; they go to another process as they are.
class Mail {
  public:
    // Returns where the word goes.
    uint32_t* put(uint32_t link, uint64_t arrival, unsigned words) {
        earliest_ = std::min(earliest_, arrival);
        const size_t at = records_.size();
        records_.resize(at + size(words));
        records_[at] = uint64_t{words} << 32 | link;
        records_[at + 1] = arrival;
        return reinterpret_cast<uint32_t*>(&records_[at + 2]);
    }
    // The first arrival.
    uint64_t earliest() const { return earliest_; }
    void append(const Mail& other) {
        records_.insert(records_.end(), other.records_.begin(), other.records_.end());
        earliest_ = std::min(earliest_, other.earliest_);
    }
    void clear() {
        records_.clear();
        earliest_ = NEVER;
    }
    const uint64_t* data() const { return records_.data(); }
    size_t size() const { return records_.size(); }
    // 64-bit units of a record with so many 32-bit words.
    static constexpr size_t size(unsigned words) { return 2 + (words + 1) / 2; }

    // Calls take(link, arrival, word, its length in 32-bit words) for each of the records.
    template <typename Take>
    static void read(const uint64_t* at, const uint64_t* end, Take take) {
        while (at != end) {
            const unsigned words = at[0] >> 32;
            take(static_cast<uint32_t>(at[0]), at[1], reinterpret_cast<const uint32_t*>(at + 2),
                 words);
            at += size(words);
        }
    }

  private:
    std::vector<uint64_t> records_;
    uint64_t earliest_ = NEVER;
};

// From one thread to another, or to another process. There are two sides: one is written while the
// other, filled before, is emptied by its receiver.
struct alignas(64) Outbox {
    Mail sides[2];
    unsigned side = 0;  // that is written

    Mail& mail() { return sides[side]; }
};

}  // namespace supernode
