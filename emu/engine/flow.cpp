#include "flow.hpp"

#include <algorithm>
#include <cstring>

namespace supernode {

void Flow::leave(uint64_t control, const uint32_t* word) {
    if (extract(control, format_.start)) {
        // The link comes up: both ends are empty.
        channels_.assign(channels_.size(), {});
        next_seq_ = 0;
        return;
    }
    if (extract(control, format_.credit)) {
        uint64_t& told = channels_[extract(control, format_.credit_vc)].told;
        told += (extract(control, format_.freed) - told) & low_bits(format_.freed.width);
    }
    if (!extract(control, format_.valid)) return;
    if (format_.reliable) {
        const uint64_t range = low_bits(format_.seq.width);
        if (extract(control, format_.seq) != next_seq_) return;  // sent again
        next_seq_ = (next_seq_ + 1) & range;
    }
    take(channels_[extract(control, format_.vc)], control, word);
}

void Flow::take(Channel& channel, uint64_t control, const uint32_t* word) {
    auto& packets = channel.packets;
    if (extract(control, format_.head)) {
        if (packets.size() == packets.capacity()) {
            // A packet has been freed if the one after it began more than a buffer ago.
            const auto past = [&](const FlowPacket& next) {
                return next.first + format_.depth <= channel.sent;
            };
            const auto kept = std::find_if_not(packets.begin() + !packets.empty(), packets.end(), past);
            if (!packets.empty()) packets.erase(packets.begin(), kept - 1);
        }
        packets.push_back({channel.sent, 0, {}});
    }
    if (!packets.empty() && packets.back().bytes < sizeof FlowPacket::header) {
        FlowPacket& packet = packets.back();
        const uint64_t room = sizeof packet.header - packet.bytes;
        const uint64_t bytes = std::min<uint64_t>(room, format_.flit_bytes);
        std::memcpy(packet.header + packet.bytes, word, bytes);
        packet.bytes += bytes;
    }
    ++channel.sent;
}

}  // namespace supernode
