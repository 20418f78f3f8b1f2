// The hardware broke a rule: which node, and when.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace supernode {

struct RuleBroken : std::runtime_error {
    uint64_t cycle;
    unsigned node;

    RuleBroken(uint64_t cycle, unsigned node, const std::string& message)
        : std::runtime_error{message}, cycle{cycle}, node{node} {}
    // The first one counts, in time and then by number, so that it does not depend on how the
    // fabric is run which one is told.
    bool before(const RuleBroken& other) const {
        return std::pair{cycle, node} < std::pair{other.cycle, other.node};
    }
};

}  // namespace supernode
