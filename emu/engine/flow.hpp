// What stands between the two ends of a link: per virtual channel, the flits that have been sent,
// and the packets that they are of.
//
// The words of a link carry flits, and totals of the flits that were freed of what its opposite
// brought. So the flits of a channel that are on the way or in the receiver's buffer are those sent
// less those told freed by the opposite link. Each link keeps what its own words say, and nobody but
// the node that sends them writes it.
#pragma once

#include <cstdint>
#include <vector>

#include "bits.hpp"
#include "pins.hpp"

namespace supernode {

// Where fields are among the control bits of a link word. Plain data: it crosses the C ABI.
struct FlowFormat {
    Field start, valid, head, vc, seq, credit, credit_vc, freed;
    uint32_t vcs, depth;
    uint32_t reliable;
    uint32_t flit_bytes;
};

// A packet, by the number of its first flit on its channel. Plain data likewise.
struct FlowPacket {
    uint64_t first;
    uint64_t bytes;  // of the header, that have come
    uint8_t header[32];
};

class Flow {
  public:
    // The format outlives it: all links of a fabric have one.
    explicit Flow(const FlowFormat& format) : format_{format}, channels_(format.vcs) {}

    // A word leaves, whose control bits are these.
    void leave(uint64_t control, const uint32_t* word);

    struct Channel {
        uint64_t sent = 0;
        uint64_t told = 0;  // flits freed of the opposite link
        std::vector<FlowPacket> packets;  // at least those of the last `depth` flits
    };
    const std::vector<Channel>& channels() const { return channels_; }
    template <typename A>
    void archive(A& a) {
        for (Channel& channel : channels_) a(channel.sent, channel.told, channel.packets);
        a(next_seq_);
    }

  private:
    void take(Channel& channel, uint64_t control, const uint32_t* word);

    const FlowFormat& format_;
    std::vector<Channel> channels_;
    uint64_t next_seq_ = 0;  // of the first flit that has not been sent before
};

}  // namespace supernode
