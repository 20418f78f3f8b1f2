#include "node.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "error.hpp"

namespace supernode {

Node::Node(unsigned number, const NodeSpec& spec, std::vector<Tile> given,
           const Settings& settings, EventLog& log, uint64_t& next, uint64_t& progress)
    : number{number},
      name{spec.name},
      tiles{std::move(given)},
      next{next},
      skip_from_{settings.skip_idle && tiles[0].model ? settling_cycles : NEVER},
      host_pins_{front().host},
      log_{log},
      progress_{progress},
      memory_{number, name, spec, 4 * front().link_format.payload_words, settings},
      format_{front().link_format},
      host_times_{sizeof(HostOperation), 16, host_due_},
      observed_{log.keeps(EventKind::activity)},
      logged_{log.keeps(EventKind::link) || log.keeps(EventKind::header)} {
    for (const LinkPins& pins : front().links) links.push_back({nullptr, nullptr, pins.tx, pins.rx});
    size_t sources = links.size();
    for (const Tile& tile : tiles) sources += tile.pins->reads.size();
    due_.resize(sources, NEVER);
    link_bits_ = low_bits(links.size());
    // Memory ports are numbered tile by tile, in the order of the manifest: the order in which
    // writes of one cycle reach memory.
    unsigned port = 0, due = links.size();
    for (Tile& tile : tiles) {
        const TilePins& pins = *tile.pins;
        tile.first_due = due;
        tile.first_read = pins.links.size();
        tile.first_write = tile.first_read + pins.reads.size();
        tile.host = tile.first_write + pins.writes.size();
        tile.first_stream = tile.host + (pins.host.valid != nullptr);
        if (tile.first_stream + pins.streams.size() > 64 || sources > 64)
            throw std::runtime_error(name + " has a tile with more than 64 ports");
        tile.activity.resize(pins.activity.size());
        if (observed_ && tile.model) tile.model->observe();
        for (const ReadPins& each : pins.reads)
            tile.reads.emplace_back(each, port++, memory_, due_[due++]);
        for (const WritePins& each : pins.writes) tile.writes.emplace_back(each, port++, memory_);
    }
    has_memory_ = port;
    if (has_memory_ && !spec.memory) throw std::runtime_error(name + " needs memory");
    join_streams();
}

void Node::join_streams() {
    // The bit of a stream among what its tile offers.
    const auto bit = [this](unsigned tile, const Stream& stream) {
        unsigned bits = tiles[tile].first_stream;
        for (const Stream& each : tiles[tile].pins->streams) {
            if (&each == &stream) break;
            bits += each.out;
        }
        return bits;
    };
    for (unsigned first = 0; first < tiles.size(); ++first) {
        for (const Stream& one : tiles[first].pins->streams) {
            if (!tiles[first].model) {
                joints.push_back({first, bit(first, one), first, one.pins, {}});
                continue;
            }
            for (unsigned second = first + 1; second < tiles.size(); ++second)
                for (const Stream& other : tiles[second].pins->streams)
                    if (one.name == other.name)
                        joints.push_back(
                            one.out ? Joint{first, bit(first, one), second, one.pins, other.pins}
                                    : Joint{second, bit(second, other), first, other.pins, one.pins});
        }
    }
}

void Node::refresh() {
    for (Tile& tile : tiles) tile.refresh();
}

void Node::observe(uint64_t t) {
    unsigned index = 0;
    for (Tile& tile : tiles) {
        const std::vector<ActivityPin>& pins = tile.pins->activity;
        for (size_t word = 0; word < pins.size(); ++word, ++index) {
            uint64_t value = 0;
            std::memcpy(&value, pins[word].at, pins[word].bytes);
            if (value == tile.activity[word]) continue;
            tile.activity[word] = value;
            log_.add(t, number, index, EventKind::activity, value, 0);
        }
    }
}

bool Node::resting() const {
    for (const Tile& tile : tiles)
        if (!tile.idle) return false;
    return true;
}

template <typename Profiled>
void Node::edges(unsigned first, uint64_t t, bool evaluated, Profiled& profile) {
    for (unsigned index = first; index < tiles.size(); ++index)
        if (stirs(index, t)) {
            tiles[index].edge(t);
            profile.edge(tiles[index].kind);
            evaluated = true;
        }
    stepped += evaluated;
    if (evaluated && observed_) observe(t + 1);
}

template <typename Profiled>
void Node::run(uint64_t start, uint64_t end, Profiled& profile) {
    for (uint64_t t = start; t < end; ++t) {
        if (t >= skip_from_ && resting()) {
            const uint64_t event = next_event(t);
            if (event >= end) {
                next = event;
                return;
            }
            t = event;
        }
        exchange(t, profile);
        edges(0, t, false, profile);
    }
    next = end >= skip_from_ && resting() ? next_event(end) : end;
}

template <typename Profiled>
bool Node::begin(uint64_t t, Profiled& profile) {
    exchange(t, profile);
    return stirs(0, t);
}

template <typename Profiled>
void Node::finish(uint64_t t, Profiled& profile) {
    const bool evaluated = stirs(0, t);
    tiles[0].evaluations += evaluated;
    tiles[0].moved |= evaluated;
    tiles[0].refresh();
    edges(1, t, evaluated, profile);
    // The model goes on for other nodes, so pins that hold something are to be emptied.
    next = t + 1 >= skip_from_ && resting() && !stirred_ ? next_event(t + 1) : t + 1;
}

uint64_t Node::next_event(uint64_t t) const {
    uint64_t event = std::min(host_due_, signal_time_);
    for (const uint64_t due : due_) event = std::min(event, due);
    for (const Tile& tile : tiles) event = std::min(event, tile.idle ? tile.wake : t);
    return std::max(event, t);
}

template <typename Profiled>
void Node::exchange(uint64_t t, Profiled& profile) {
    profile.lap(Work::rest);
    for (Tile& tile : tiles) tile.offers = loud(tile, t) ? tile.look() : 0;
    send(t, tiles[0].offers & link_bits_);
    const uint64_t due = due_by(t);
    stirred_ = (due & link_bits_) != 0;
    if ((due | holding_) & link_bits_) receive(due & link_bits_);
    profile.lap(Work::links);
    if (host_pins_.valid) stirred_ |= host(t);
    if (signal_time_ <= t) [[unlikely]] stirred_ |= signal(t);
    profile.lap(Work::host);
    if (has_memory_) stirred_ |= memory(t, due);
    profile.lap(Work::memory);
    if (!joints.empty()) stirred_ |= streams(t);
    profile.lap(Work::streams);
}

template void Node::run(uint64_t, uint64_t, NoProfile&);
template void Node::run(uint64_t, uint64_t, Profile&);
template bool Node::begin(uint64_t, NoProfile&);
template bool Node::begin(uint64_t, Profile&);
template void Node::finish(uint64_t, NoProfile&);
template void Node::finish(uint64_t, Profile&);
template void Node::exchange(uint64_t, NoProfile&);

void Node::send(uint64_t t, uint64_t ports) {
    // Locals, because the compiler cannot know that a word is not one of these members.
    const unsigned words = format_.words;
    const uint64_t valid = format_.valid;
    const bool apart = tiles[0].model;
    if (!apart)
        for (const LinkPins& pins : front().links) std::memset(pins.fault, 0, 4 * words);
    uint64_t flits = 0;
    for (; ports; ports &= ports - 1) {
        const unsigned port = std::countr_zero(ports);
        const uint32_t* word = links[port].tx;
        const uint64_t control = format_.control_bits(word);
        const bool flit = control & valid;
        if (logged_) log_link(t, port, control, word);
        Link* link = links[port].out;
        if (!link) {
            if (flit)
                throw RuleBroken(t, number,
                                 name + " sent a flit to link port " + std::to_string(port) +
                                     ", which leads nowhere");
            continue;
        }
        ++link->counts.words;
        link->counts.flits += flit;
        flits += flit;
        if (link->flow) link->flow->leave(control, word);
        bool struck = false;
        if (link->faults && !passes(t, port, flit, struck)) continue;
        uint32_t* target = apart ? link->send(t) : front().links[port].fault;
        if (apart) copy_words(target, word, words);
        if (struck) link->faults->errors.flip(t, target);
    }
    progress_ += flits;
}

bool Node::passes(uint64_t t, unsigned port, bool flit, bool& struck) {
    Link& link = *links[port].out;
    if (link.faults->down(t, t + link.spec.latency)) {
        ++link.counts.lost;
        if (log_.enabled) log_.add(t, number, port, EventKind::lost, 0, 0);
        return false;
    }
    struck = link.faults->errors.strikes(t);
    if (struck) {
        ++link.counts.corrupted;
        link.counts.corrupted_flits += flit;
        if (log_.enabled) log_.add(t, number, port, EventKind::corrupt, 0, 0);
    }
    return true;
}

void Node::receive(uint64_t arrived) {
    const unsigned words = format_.words;
    for (uint64_t past = holding_ & link_bits_ & ~arrived; past; past &= past - 1)
        std::memset(links[std::countr_zero(past)].rx, 0, 4 * words);
    for (uint64_t ports = arrived; ports; ports &= ports - 1) {
        LinkPort& port = links[std::countr_zero(ports)];
        copy_words(port.rx, port.in->words.front(), words);
        port.in->words.pop();
    }
    holding_ = (holding_ & ~link_bits_) | arrived;
    front().arrivals.set(arrived);
}

bool Node::host(uint64_t t) {
    if (tiles[0].offers >> tiles[0].host & 1) {
        host_results.push_back(*host_pins_.read_data);
        --host_reads_pending;
        if (log_.enabled)
            log_.add(t, number, 0, EventKind::host_result, *host_pins_.read_data, 0);
    }
    if (host_due_ > t) {
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
    ++progress_;
    if (log_.enabled)
        log_.add(t, number, 0, operation.write ? EventKind::host_write : EventKind::host_read,
                 operation.address, operation.data);
    return true;
}

bool Node::signal(uint64_t t) {
    while (next_signal_ < signals_.size() && signals_[next_signal_].cycle <= t) {
        const Signal& change = signals_[next_signal_++];
        *front().links[change.port].up = change.level;
        if (log_.enabled)
            log_.add(t, number, change.port, EventKind::signal, change.level, 0);
    }
    signal_time_ = next_signal_ < signals_.size() ? signals_[next_signal_].cycle : NEVER;
    skip_from_ = std::max(skip_from_, t + settling_cycles);
    return true;
}

unsigned Node::memory(uint64_t t, uint64_t due) {
    unsigned stirred = 0;
    // Ports that may stall have `ready` driven in each cycle in which their tile is looked at.
    const bool driven = memory_.stall_below;
    for (unsigned index = 0; index < tiles.size(); ++index) {
        Tile& tile = tiles[index];
        const bool all = driven && loud(tile, t);
        for (unsigned number = 0; number < tile.reads.size(); ++number) {
            ReadPort& port = tile.reads[number];
            const uint64_t bit = uint64_t{1} << (tile.first_due + number);
            if ((due | holding_) & bit) {
                holding_ &= ~bit;
                if (due & bit && port.respond(t, log_)) {
                    holding_ |= bit;
                    stirred |= 1u << index;
                    ++progress_;
                } else {
                    port.withdraw();
                }
            }
            if (all || tile.offers >> (tile.first_read + number) & 1)
                progress_ += port.request(t, log_);
        }
    }
    for (Tile& tile : tiles) {
        const bool all = driven && loud(tile, t);
        for (unsigned number = 0; number < tile.writes.size(); ++number)
            if (all || tile.offers >> (tile.first_write + number) & 1)
                progress_ += tile.writes[number].request(t, log_);
    }
    return stirred;
}

unsigned Node::streams(uint64_t t) {
    unsigned stirred = 0;
    for (unsigned index = 0; index < joints.size(); ++index) {
        Joint& joint = joints[index];
        const bool offered = tiles[joint.source].offers >> joint.bit & 1;
        bool taken = offered && !joint.in.valid && *joint.out.ready;
        if (joint.in.valid) {
            if (offered != joint.driven) *joint.in.valid = joint.driven = offered;
            if (tiles[joint.sink].moved && (*joint.in.ready != 0) != joint.ready)
                *joint.out.ready = joint.ready = *joint.in.ready != 0;
            if (offered) *joint.in.payload = *joint.out.payload;
            taken = offered && joint.ready;
        }
        if (!offered) continue;
        stirred |= 1u << joint.sink;
        if (!taken) continue;
        ++progress_;
        if (log_.enabled) log_.add(t, number, index, EventKind::stream, *joint.out.payload, 0);
    }
    for (Tile& tile : tiles) tile.moved = false;
    return stirred;
}

void Node::host_operation(uint64_t now, HostOperation operation) {
    if (!host_pins_.valid) throw std::runtime_error(name + " has no host port");
    const uint64_t cycle = std::max(now, host_free_);
    host_free_ = cycle + 1;
    std::memcpy(host_times_.push(cycle), &operation, sizeof operation);
    if (!operation.write) ++host_reads_pending;
    next = std::min(next, cycle);
}

void Node::add_signal(uint64_t cycle, unsigned port, bool level) {
    signals_.push_back({cycle, port, level});
    std::stable_sort(signals_.begin(), signals_.end(),
                     [](const Signal& a, const Signal& b) { return a.cycle < b.cycle; });
    signal_time_ = signals_.front().cycle;
}

void Node::log_link(uint64_t t, unsigned port, uint64_t control, const uint32_t* word) {
    uint64_t meaning = control & format_.control;
    if (!(control & format_.valid)) meaning &= ~format_.flit;
    if (!(control & format_.has_credit)) meaning &= ~format_.credit;
    if (!(control & format_.has_ack)) meaning &= ~format_.ack;
    const bool payload = control & (format_.valid | format_.start);
    log_.add(t, number, port, EventKind::link, meaning,
             payload ? digest(reinterpret_cast<const uint8_t*>(word), 4 * format_.payload_words)
                     : 0);
    if (control & format_.valid && control & format_.head) log_header(t, port, word);
}

void Node::log_header(uint64_t t, unsigned port, const uint32_t* word) {
    uint64_t kept[2] = {};
    for (const Move& move : format_.header)
        kept[move.to / 64] |= extract(word, move.from) << move.to % 64;
    log_.add(t, number, port, EventKind::header, kept[0], kept[1]);
}

}  // namespace supernode
