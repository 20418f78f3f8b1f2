#include "memory.hpp"

#include <cmath>
#include <sstream>
#include <stdexcept>

#include "error.hpp"

namespace supernode {

Memory::Memory(unsigned node, const std::string& name, const NodeSpec& spec, unsigned flit_bytes,
               const Settings& settings)
    : bytes{spec.memory},
      size{spec.memory_bytes},
      flit_bytes{flit_bytes},
      latency{spec.memory_latency},
      node{node},
      name{name},
      seed{mix(settings.seed)},
      stall_below{spec.stall_rate < 1
                      ? static_cast<uint64_t>(std::ldexp(spec.stall_rate, 64)) : NEVER} {}

void Memory::out_of_range(uint64_t index, unsigned port, uint64_t cycle, const char* what) const {
    std::ostringstream text;
    text << name << " memory port " << port << ": " << what << " at address 0x"
         << std::hex << index * flit_bytes << std::dec << " in cycle " << cycle
         << " is beyond the memory of " << size << " bytes";
    throw RuleBroken(cycle, node, text.str());
}

ReadPort::ReadPort(const ReadPins& pins, unsigned port, const Memory& memory, uint64_t& due)
    : pins_{pins},
      port_{port},
      memory_{memory},
      pending_{memory.flit_bytes + 4, memory.latency + 1, due} {
    *pins_.ready = 1;
}

void ReadPort::answer(uint64_t t, EventLog& log) {
    const uint8_t* word = pending_.front();
    std::memcpy(pins_.response, word, memory_.flit_bytes + 4);
    *pins_.response_valid = 1;
    if (log.keeps(EventKind::read_response))
        log.add(t, memory_.node, port_, EventKind::read_response,
                pins_.response[memory_.flit_bytes / 4], digest(word, memory_.flit_bytes));
    pending_.pop();
}

void ReadPort::accept(uint64_t t, EventLog& log) {
    const uint64_t index = extract(*pins_.request, pins_.index);
    const uint32_t tag = static_cast<uint32_t>(extract(*pins_.request, pins_.tag));
    const uint8_t* flit = memory_.flit(index, port_, t, "read");
    uint8_t* word = pending_.push(t + memory_.latency);
    std::memcpy(word, flit, memory_.flit_bytes);
    std::memcpy(word + memory_.flit_bytes, &tag, 4);
    if (log.keeps(EventKind::read_request))
        log.add(t, memory_.node, port_, EventKind::read_request, index * memory_.flit_bytes, tag);
}

void WritePort::accept(uint64_t t, EventLog& log) {
    const uint64_t index = extract(pins_.request, pins_.index);
    const uint64_t mask = extract(pins_.request, pins_.mask);
    uint8_t* flit = memory_.flit(index, port_, t, "write");
    const auto* data = reinterpret_cast<const uint8_t*>(pins_.request);
    if (mask == low_bits(memory_.flit_bytes)) {
        std::memcpy(flit, data, memory_.flit_bytes);
    } else {
        for (unsigned lane = 0; lane < memory_.flit_bytes; ++lane)
            if (mask >> lane & 1) flit[lane] = data[lane];
    }
    if (log.keeps(EventKind::write)) {
        uint8_t kept[64] = {};
        for (unsigned lane = 0; lane < memory_.flit_bytes; ++lane)
            if (mask >> lane & 1) kept[lane] = data[lane];
        log.add(t, memory_.node, port_, EventKind::write, index * memory_.flit_bytes,
                digest(kept, memory_.flit_bytes, mask));
    }
}

}  // namespace supernode
