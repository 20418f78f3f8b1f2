// A queue of fixed-size records that grows when it must and then stays as it is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "bits.hpp"

namespace supernode {

// Each record is a time and a number of payload bytes; times never decrease.
class TimedRing {
  public:
    // `front` is where the time of the first record is kept, NEVER if there is none: who waits for
    // many rings has these side by side.
    TimedRing(unsigned payload_bytes, unsigned capacity, uint64_t& front)
        : front_{front}, stride_{1 + (payload_bytes + 7) / 8}, slots_(capacity * stride_) {
        front_ = NEVER;
    }
    TimedRing(TimedRing&&) = default;
    bool empty() const { return !size_; }
    uint64_t size() const { return size_; }
    const uint8_t* front() const {
        return reinterpret_cast<const uint8_t*>(slots_.data() + head_ + 1);
    }
    void pop() {
        head_ = after(head_);
        front_ = --size_ ? slots_[head_] : NEVER;
        fetch(head_);
    }
    // Returns where the new record's payload goes.
    uint8_t* push(uint64_t time) {
        if (size_ * stride_ == slots_.size()) grow();
        if (!size_++) front_ = time;
        uint64_t* at = slots_.data() + tail_;
        *at = time;
        tail_ = after(tail_);
        fetch(tail_);
        return reinterpret_cast<uint8_t*>(at + 1);
    }
    // The records; where they lie does not matter.
    template <typename A>
    void archive(A& a) {
        uint64_t count = size_;
        a(count);
        if constexpr (A::loading) head_ = tail_ = size_ = 0;
        size_t at = head_;
        for (uint64_t index = 0; index < count; ++index, at = after(at)) {
            uint64_t* record = slots_.data() + at;
            if constexpr (A::loading) record = reinterpret_cast<uint64_t*>(push(0)) - 1;
            a.raw(record, 8 * stride_);
        }
        front_ = count ? slots_[head_] : NEVER;
    }

  private:
    size_t after(size_t at) const { return at + stride_ == slots_.size() ? 0 : at + stride_; }
    // A ring is touched once a cycle, with those of many nodes in between: time enough for the
    // record that is next to come closer.
    void fetch(size_t at) const {
        __builtin_prefetch(slots_.data() + at);
        __builtin_prefetch(slots_.data() + at + 8);
    }
    // A full ring has its first record where the next one would go.
    void grow() {
        std::rotate(slots_.begin(), slots_.begin() + head_, slots_.end());
        head_ = 0;
        tail_ = slots_.size();
        slots_.resize(2 * slots_.size());
    }

    uint64_t& front_;
    const size_t stride_;
    size_t head_ = 0, tail_ = 0;  // where records begin, in 64-bit words
    uint64_t size_ = 0;
    std::vector<uint64_t> slots_;
};

}  // namespace supernode
