// What a fabric is built with. Plain data: it crosses the C ABI.
#pragma once

#include <cstdint>

namespace supernode {

struct Settings {
    uint32_t cards;
    uint32_t flit_bytes;
    uint32_t link_latency;
    uint32_t window;
    uint32_t quantum;
    uint32_t memory_latency;
    uint32_t flat;
    uint32_t skip_idle;
    uint32_t event_log;
    uint32_t reserved;
    uint64_t memory_bytes;
    uint64_t seed;
    double stall_rate;
    // Stepped cycles without progress after which a wait gives up.
    uint64_t patience;
};

}  // namespace supernode
