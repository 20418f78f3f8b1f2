// State of a Verilated model as bytes: Verilator's own serialisation of all its variables (pins,
// registers, memories and what it remembers of the clock), into a vector and out of one.
//
// Included by glue, which is compiled against Verilator's headers; the engine is not.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "verilated_save.h"

namespace supernode {

class StateWriter final : public VerilatedSerialize {
  public:
    explicit StateWriter(std::vector<uint8_t>& to) : to_{to} { m_isOpen = true; }
    ~StateWriter() override { close(); }
    void flush() override {
        to_.insert(to_.end(), m_bufp, m_cp);
        m_cp = m_bufp;
    }

  private:
    std::vector<uint8_t>& to_;
};

class StateReader final : public VerilatedDeserialize {
  public:
    StateReader(const uint8_t* from, size_t bytes) : at_{from}, end_{from + bytes} {
        m_isOpen = true;
        m_endp = m_cp;
        fill();
    }
  private:
    // What has not been read moves to the front of the buffer, and as much as fits behind it.
    void fill() override {
        if (at_ == end_) return;
        const size_t kept = m_endp - m_cp;
        std::memmove(m_bufp, m_cp, kept);
        const size_t more = std::min<size_t>(bufferSize() - kept, end_ - at_);
        std::memcpy(m_bufp + kept, at_, more);
        at_ += more;
        m_cp = m_bufp;
        m_endp = m_bufp + kept + more;
    }

    const uint8_t* at_;
    const uint8_t* end_;
};

}  // namespace supernode
