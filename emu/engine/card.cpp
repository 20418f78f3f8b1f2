#include "card.hpp"

#include <algorithm>
#include <stdexcept>

namespace supernode {

namespace {

uint64_t control_bits(const LinkFormat& format, const uint32_t* word) {
    return word[format.payload_words] | uint64_t{word[format.payload_words + 1]} << 32;
}

bool passes(const StreamPins& stream) { return *stream.valid && *stream.ready; }

}  // namespace

Card::Card(unsigned rank, uint8_t* memory, const Settings& settings, EventLog& log,
           TilePins& network_pins, TilePins& compute_pins, Model* network_model,
           Model* compute_model, uint64_t& next)
    : rank{rank},
      next{next},
      settings_{settings},
      log_{log},
      memory_{memory, rank, settings},
      format_{network_pins.link_format},
      host_pins_{network_pins.host},
      host_times_{sizeof(HostOperation), 16},
      skip_from_{settings.skip_idle && network_model ? settling_cycles : NEVER},
      joined_{network_model != nullptr} {
    tiles[network].model = network_model;
    tiles[network].pins = &network_pins;
    tiles[compute].model = compute_model;
    tiles[compute].pins = &compute_pins;
    for (size_t port = 0; port < network_pins.links.size(); ++port)
        links.push_back({.arrivals = {4 * format_.words, 2 * settings.link_latency + 1}});
    // Memory ports are numbered tile by tile, in the order of the manifest: the order in which
    // writes of one cycle reach memory.
    unsigned port = 0;
    for (unsigned tile : {network, compute}) {
        for (const ReadPins& pins : tiles[tile].pins->reads) {
            reads.emplace_back(pins, port++, memory_);
            network_reads_ += tile == network;
        }
        for (const WritePins& pins : tiles[tile].pins->writes) {
            writes.emplace_back(pins, port++, memory_);
            network_writes_ += tile == network;
        }
    }
}

void Card::refresh() {
    for (Tile& tile : tiles) tile.refresh();
}

void Card::run(uint64_t start, uint64_t end) {
    Tile &net = tiles[network], &array = tiles[compute];
    for (uint64_t t = start; t < end; ++t) {
        const bool skip = t >= skip_from_;
        if (skip && net.idle && array.idle) {
            const uint64_t event = next_event(t);
            if (event >= end) {
                next = event;
                return;
            }
            t = event;
        }
        const unsigned stirred = exchange(t);
        bool evaluated = false;
        for (unsigned index : {network, compute}) {
            Tile& tile = tiles[index];
            if (skip && tile.quiet(t) && !(stirred >> index & 1)) continue;
            tile.model->edge(t);
            tile.refresh();
            ++tile.evaluations;
            evaluated = true;
        }
        stepped += evaluated;
    }
    next = end >= skip_from_ && net.idle && array.idle ? next_event(end) : end;
}

uint64_t Card::next_event(uint64_t t) const {
    uint64_t event = host_times_.front_time();
    for (const LinkPort& link : links) event = std::min(event, link.arrivals.front_time());
    for (const ReadPort& port : reads) event = std::min(event, port.due());
    for (const Tile& tile : tiles) event = std::min(event, tile.idle ? tile.wake : t);
    return std::max(event, t);
}

unsigned Card::exchange(uint64_t t) {
    unsigned stirred = 0;
    if (loud(network, t)) send(t);
    stirred |= receive(t) << network;
    stirred |= host(t) << network;
    stirred |= memory(t);
    if (loud(network, t) || loud(compute, t) || streaming_) stirred |= streams(t);
    return stirred;
}

void Card::send(uint64_t t) {
    const TilePins& pins = *tiles[network].pins;
    for (unsigned port = 0; port < links.size(); ++port) {
        const uint32_t* word = pins.links[port].tx;
        const uint64_t control = control_bits(format_, word);
        if (!(control & format_.strobe)) continue;
        LinkPort& link = links[port];
        ++link.words;
        if (control & format_.valid) {
            ++link.flits;
            ++progress;
        }
        if (log_.enabled) log_link(t, port, control, word);
        if (!link.peer) {
            if (control & format_.valid)
                throw std::runtime_error("card " + std::to_string(rank) + " sent a flit to link " +
                                         "port " + std::to_string(port) + ", which leads nowhere");
            continue;
        }
        if (!joined_) continue;
        const uint64_t arrival = t + settings_.link_latency;
        Card& peer = *link.peer;
        std::memcpy(peer.links[link.peer_port].arrivals.push(arrival), word, 4 * format_.words);
        peer.next = std::min(peer.next, arrival);
    }
}

bool Card::receive(uint64_t t) {
    const TilePins& pins = *tiles[network].pins;
    bool received = false;
    for (unsigned port = 0; port < links.size(); ++port) {
        LinkPort& link = links[port];
        if (link.arrivals.front_time() == t) {
            std::memcpy(pins.links[port].rx, link.arrivals.front(), 4 * format_.words);
            link.arrivals.pop();
            link.receiving = received = true;
        } else if (link.receiving) {
            std::memset(pins.links[port].rx, 0, 4 * format_.words);
            link.receiving = false;
        }
    }
    return received;
}

bool Card::host(uint64_t t) {
    if (loud(network, t) && *host_pins_.read_valid) {
        host_results.push_back(*host_pins_.read_data);
        --host_reads_pending;
        if (log_.enabled)
            log_.add(t, rank, 0, EventKind::host_result, *host_pins_.read_data, 0);
    }
    if (host_times_.front_time() > t) {
        if (host_driven_) *host_pins_.valid = host_driven_ = false;
        return false;
    }
    HostOperation operation;
    std::memcpy(&operation, host_times_.front(), sizeof operation);
    host_times_.pop();
    *host_pins_.valid = host_driven_ = true;
    *host_pins_.write = operation.write;
    *host_pins_.address = operation.address;
    *host_pins_.data = operation.data;
    ++progress;
    if (log_.enabled)
        log_.add(t, rank, 0, operation.write ? EventKind::host_write : EventKind::host_read,
                 operation.address, operation.data);
    return true;
}

unsigned Card::memory(uint64_t t) {
    unsigned stirred = 0;
    const auto serve_reads = [&](unsigned tile, size_t first, size_t last) {
        const bool asks = loud(tile, t);
        for (size_t index = first; index < last; ++index) {
            if (reads[index].respond(t, log_)) {
                stirred |= 1u << tile;
                ++progress;
            }
            if (asks) progress += reads[index].request(t, log_);
        }
    };
    const auto serve_writes = [&](unsigned tile, size_t first, size_t last) {
        if (!loud(tile, t)) return;
        for (size_t index = first; index < last; ++index)
            progress += writes[index].request(t, log_);
    };
    serve_reads(network, 0, network_reads_);
    serve_reads(compute, network_reads_, reads.size());
    serve_writes(network, 0, network_writes_);
    serve_writes(compute, network_writes_, writes.size());
    return stirred;
}

unsigned Card::streams(uint64_t t) {
    const TilePins &net = *tiles[network].pins, &array = *tiles[compute].pins;
    if (joined_) {
        *array.gemm.valid = *net.gemm.valid;
        *net.gemm.ready = *array.gemm.ready;
        *net.done.valid = *array.done.valid;
        *array.done.ready = *net.done.ready;
    }
    streaming_ = *net.gemm.valid || *net.done.valid;  // the input pins are to be cleared again
    if (!streaming_) return 0;
    unsigned stirred = 0;
    if (*net.gemm.valid) {
        if (joined_) *array.gemm.payload = *net.gemm.payload;
        stirred |= 1u << compute;
        if (passes(net.gemm)) {
            ++progress;
            if (log_.enabled) log_.add(t, rank, 0, EventKind::gemm, *net.gemm.payload, 0);
        }
    }
    if (*net.done.valid) {
        if (joined_) *net.done.payload = *array.done.payload;
        stirred |= 1u << network;
        if (passes(net.done)) {
            ++progress;
            if (log_.enabled) log_.add(t, rank, 0, EventKind::done, *net.done.payload, 0);
        }
    }
    return stirred;
}

void Card::host_operation(uint64_t now, HostOperation operation) {
    const uint64_t cycle = std::max(now, host_free_);
    host_free_ = cycle + 1;
    std::memcpy(host_times_.push(cycle), &operation, sizeof operation);
    if (!operation.write) ++host_reads_pending;
    next = std::min(next, cycle);
}

bool Card::stream_blocked(bool gemm) const {
    const StreamPins& stream = gemm ? tiles[network].pins->gemm : tiles[network].pins->done;
    return *stream.valid && !*stream.ready;
}

void Card::log_link(uint64_t t, unsigned port, uint64_t control, const uint32_t* word) {
    uint64_t meaning = control & format_.control;
    if (!(control & format_.valid)) meaning &= ~format_.flit;
    if (!(control & format_.has_credit)) meaning &= ~format_.credit;
    if (!(control & format_.has_ack)) meaning &= ~format_.ack;
    const bool flit = control & format_.valid;
    log_.add(t, rank, port, EventKind::link, meaning,
             flit ? digest(reinterpret_cast<const uint8_t*>(word), 4 * format_.payload_words) : 0);
}

}  // namespace supernode
