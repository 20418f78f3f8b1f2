// A node's memory and its ports.
//
// A read request accepted in cycle t samples memory before the writes of that cycle and is answered
// in cycle t + latency, later if the port stalls; responses keep the order of a port's requests.
// Stalls are a pure function of (seed, node, port, cycle), so that they do not depend on how the
// fabric is run.
#pragma once

#include <cstdint>
#include <string>

#include "log.hpp"
#include "pins.hpp"
#include "ring.hpp"
#include "settings.hpp"

namespace supernode {

struct Memory {
    uint8_t* bytes;
    uint64_t size;
    unsigned flit_bytes;
    unsigned latency;
    unsigned node;
    const std::string& name;  // of the node
    uint64_t seed;
    uint64_t stall_below;  // a hash below this stalls; 0 never does

    Memory(unsigned node, const std::string& name, const NodeSpec& spec, unsigned flit_bytes,
           const Settings& settings);

    bool stalls(unsigned port, uint64_t cycle, unsigned salt) const {
        return stall_below &&
               mix(mix(seed ^ (uint64_t{node} << 32 | port << 1 | salt)) + cycle) < stall_below;
    }
    // Where flit `index` starts; the one behind it comes closer, as most are asked for in turn.
    uint8_t* flit(uint64_t index, unsigned port, uint64_t cycle, const char* what) const {
        if (index >= size / flit_bytes) [[unlikely]] out_of_range(index, port, cycle, what);
        uint8_t* found = bytes + index * flit_bytes;
        __builtin_prefetch(found + flit_bytes);
        return found;
    }

  private:
    [[noreturn]] void out_of_range(uint64_t index, unsigned port, uint64_t cycle,
                                   const char* what) const;
};

class ReadPort {
  public:
    // `due` is where the time of the next response is kept.
    ReadPort(const ReadPins& pins, unsigned port, const Memory& memory, uint64_t& due);

    // Drives the response that is due in cycle t; false if the port stalls.
    bool respond(uint64_t t, EventLog& log) {
        if (memory_.stalls(port_, t, 0)) return false;
        answer(t, log);
        return true;
    }
    void withdraw() { *pins_.response_valid = 0; }
    // Takes the request of cycle t, if the tile makes one; true if taken.
    bool request(uint64_t t, EventLog& log) {
        if (memory_.stall_below) *pins_.ready = !memory_.stalls(port_, t, 1);
        if (!*pins_.valid || !*pins_.ready) return false;
        accept(t, log);
        return true;
    }

    template <typename A>
    void archive(A& a) {
        a(pending_);
    }

    uint64_t outstanding() const { return pending_.size(); }
    bool offered() const { return *pins_.valid; }

  private:
    void answer(uint64_t t, EventLog& log);
    void accept(uint64_t t, EventLog& log);

    ReadPins pins_;
    unsigned port_;
    const Memory& memory_;
    TimedRing pending_;  // the response word: data, then tag
};

class WritePort {
  public:
    WritePort(const WritePins& pins, unsigned port, const Memory& memory)
        : pins_{pins}, port_{port}, memory_{memory} {
        *pins_.ready = 1;
    }
    bool request(uint64_t t, EventLog& log) {
        if (memory_.stall_below) *pins_.ready = !memory_.stalls(port_, t, 1);
        if (!*pins_.valid || !*pins_.ready) return false;
        accept(t, log);
        return true;
    }
    bool offered() const { return *pins_.valid; }

  private:
    void accept(uint64_t t, EventLog& log);

    WritePins pins_;
    unsigned port_;
    const Memory& memory_;
};

}  // namespace supernode
