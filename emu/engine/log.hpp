// The event log: what happened on every boundary of every node, in a canonical order.
//
// Two runs of one workload are equal exactly if their logs are: whatever has no meaning (payload of
// a word without a flit, a credit field without its flag, bytes that a write does not enable) is
// left out of the digests.
#pragma once

#include <cstdint>
#include <vector>

namespace supernode {

enum class EventKind : uint16_t {
    link = 0,
    read_request = 1,
    read_response = 2,
    write = 3,
    host_write = 4,
    host_read = 5,
    host_result = 6,
    stream = 7,   // a transfer between the tiles of a node
    corrupt = 8,  // a word that leaves in this cycle is struck
    lost = 9,     // a word that leaves in this cycle will not arrive
    signal = 10,  // the `up` pin of a link port has changed
    header = 11,  // of a packet whose head flit leaves
    activity = 12,  // a word of what a tile is doing, from this cycle on
};

struct Event {
    uint64_t cycle;
    uint32_t node;
    uint16_t port;
    EventKind kind;
    uint64_t value;
    uint64_t digest;
};

class EventLog {
  public:
    // A bit per kind that is recorded.
    explicit EventLog(uint32_t kinds) : enabled{kinds != 0}, kinds_{kinds} {}

    const bool enabled;

    bool keeps(EventKind kind) const { return kinds_ >> static_cast<unsigned>(kind) & 1; }
    void add(uint64_t cycle, unsigned node, unsigned port, EventKind kind, uint64_t value,
             uint64_t digest) {
        if (keeps(kind))
            events_.push_back({cycle, node, static_cast<uint16_t>(port), kind, value, digest});
    }
    // Takes all that another log has.
    void absorb(EventLog& other);
    template <typename A>
    void archive(A& a) {
        a(events_);
    }
    // Sorted by (cycle, node, port, kind); a port has one event of a kind per cycle.
    const std::vector<Event>& sorted();
    // What happened before `cycle`, sorted, and leave it out from now on.
    const std::vector<Event>& take(uint64_t cycle);

  private:
    const uint32_t kinds_;
    std::vector<Event> events_, taken_;
};

}  // namespace supernode
