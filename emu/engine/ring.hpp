// A queue of fixed-size records that grows when it must and then stays as it is.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "bits.hpp"

namespace supernode {

// Each record is a time and a number of payload bytes; times never decrease.
class TimedRing {
  public:
    TimedRing(unsigned payload_bytes, unsigned capacity)
        : stride_{1 + (payload_bytes + 7) / 8} {
        mask_ = 1;
        while (mask_ < capacity) mask_ *= 2;
        slots_.resize(mask_ * stride_);
        mask_ -= 1;
    }
    bool empty() const { return head_ == tail_; }
    uint64_t size() const { return tail_ - head_; }
    uint64_t front_time() const { return front_; }
    const uint8_t* front() const {
        return reinterpret_cast<const uint8_t*>(slot(head_) + 1);
    }
    void pop() {
        ++head_;
        front_ = empty() ? NEVER : *slot(head_);
    }
    // Returns where the new record's payload goes.
    uint8_t* push(uint64_t time) {
        if (size() > mask_) grow();
        if (empty()) front_ = time;
        uint64_t* at = slots_.data() + (tail_++ & mask_) * stride_;
        *at = time;
        return reinterpret_cast<uint8_t*>(at + 1);
    }
    // The records; where they lie does not matter.
    template <typename A>
    void archive(A& a) {
        uint64_t count = size();
        a(count);
        if constexpr (A::loading) head_ = tail_ = 0;
        for (uint64_t index = 0; index < count; ++index) {
            if constexpr (A::loading) push(0);
            a.raw(slots_.data() + ((head_ + index) & mask_) * stride_, 8 * stride_);
        }
        front_ = empty() ? NEVER : *slot(head_);
    }

  private:
    const uint64_t* slot(uint64_t index) const {
        return slots_.data() + (index & mask_) * stride_;
    }
    void grow() {
        std::vector<uint64_t> larger(2 * slots_.size());
        const uint64_t mask = 2 * mask_ + 1;
        for (uint64_t index = head_; index != tail_; ++index)
            std::memcpy(larger.data() + (index & mask) * stride_, slot(index), 8 * stride_);
        slots_.swap(larger);
        mask_ = mask;
    }

    uint64_t front_ = NEVER;  // time of the first record, kept here because it is asked most
    uint64_t head_ = 0, tail_ = 0;
    uint64_t mask_;
    unsigned stride_;
    std::vector<uint64_t> slots_;
};

}  // namespace supernode
