// What a fabric is built with. Plain data: it crosses the C ABI.
#pragma once

#include <cstdint>

namespace supernode {

struct Settings {
    uint32_t nodes;
    uint32_t window;
    uint32_t quantum;
    uint32_t flat;
    uint32_t skip_idle;
    uint32_t event_log;  // a bit per kind of event that is recorded
    uint32_t threads;
    // Processes that share the nodes, and which of them this is.
    uint32_t ranks, rank;
    uint64_t seed;
    // Stepped cycles without progress after which a wait gives up.
    uint64_t patience;
};

struct NodeSpec {
    // What messages call it.
    const char* name;
    // Model of each tile; the first one has the links and the host port.
    const char* const* models;
    uint32_t tiles;
    // Null and 0 where no tile has a memory port.
    uint32_t memory_latency;
    uint8_t* memory;
    uint64_t memory_bytes;
    // Share of cycles in which memory ports refuse requests and hold responses.
    double stall_rate;
    // Who runs it. Of a node of another process nothing but this and the name matters.
    uint32_t rank, thread;
};

// A directed link.
struct LinkSpec {
    uint32_t source, source_port;
    uint32_t target, target_port;
    uint32_t latency;
    uint32_t reserved;
};

// What a directed link has carried.
struct LinkCounts {
    uint64_t words;            // sent, those with control alone included
    uint64_t flits;            // sent
    uint64_t corrupted;        // words that were struck
    uint64_t corrupted_flits;  // those of them that held a flit
    uint64_t lost;             // words that the link was down for
};

}  // namespace supernode
