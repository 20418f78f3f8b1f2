// One directed link: the words on their way, what befalls them, and what it has carried.
#pragma once

#include <algorithm>
#include <memory>

#include "faults.hpp"
#include "pins.hpp"
#include "ring.hpp"
#include "settings.hpp"

namespace supernode {

struct Link {
    const LinkSpec spec;
    uint64_t& next;  // that of the node it leads to
    TimedRing words;
    std::unique_ptr<Faults> faults;  // null: it carries everything as it is
    LinkCounts counts{};

    Link(const LinkSpec& spec, const LinkFormat& format, uint64_t& next)
        : spec{spec}, next{next}, words{4 * format.words, spec.latency + 1} {}

    // Where the word goes that leaves in cycle t.
    uint32_t* send(uint64_t t) {
        const uint64_t arrival = t + spec.latency;
        next = std::min(next, arrival);
        return reinterpret_cast<uint32_t*>(words.push(arrival));
    }
};

}  // namespace supernode
