// The C ABI, loaded with ctypes. Functions that can fail return a negative number and leave a
// message in sn_error.
#include <algorithm>
#include <cstring>
#include <exception>

#include "checkpoint.hpp"
#include "fabric.hpp"

using supernode::Condition;
using supernode::Event;
using supernode::Fabric;
using supernode::Field;
using supernode::FlowFormat;
using supernode::FlowPacket;
using supernode::LinkCounts;
using supernode::LinkSpec;
using supernode::Node;
using supernode::NodeSpec;
using supernode::Outcome;
using supernode::Profile;
using supernode::Peers;
using supernode::Settings;
using supernode::Tile;
using supernode::Work;

namespace {

template <typename Action>
int guarded(Fabric* fabric, Action action) {
    try {
        action();
        return 0;
    } catch (const std::exception& problem) {
        fabric->error = problem.what();
        return -1;
    }
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// What one node is doing; for reports.
struct NodeStatus {
    uint64_t host_operations, host_reads;
    uint64_t memory_reads;         // requests that wait for their response
    uint64_t words_arriving;       // on the links to this node
    uint32_t read_requests, write_requests;  // ports with a request on offer
    uint32_t streams_blocked;      // a bit per stream between tiles: offered and not taken
    uint32_t completions;
};

struct TileStatus {
    uint64_t wake;
    uint64_t evaluations;
    uint32_t idle, reserved;
};

Fabric* sn_create(const Settings* settings) { return new Fabric{*settings}; }

void sn_destroy(Fabric* fabric) { delete fabric; }

const char* sn_error(Fabric* fabric) { return fabric->error.c_str(); }

int sn_add_node(Fabric* fabric, const NodeSpec* spec) {
    return guarded(fabric, [&] { fabric->add_node(*spec); });
}

int sn_connect(Fabric* fabric, const LinkSpec* spec) {
    return guarded(fabric, [&] { fabric->connect(*spec); });
}

int sn_set_errors(Fabric* fabric, uint32_t source, uint32_t port, const Field* fields,
                  uint32_t count, double rate, uint64_t burst) {
    return guarded(fabric, [&] {
        fabric->set_errors(source, port, {fields, fields + count}, rate, burst);
    });
}

int sn_add_outage(Fabric* fabric, uint32_t source, uint32_t port, uint64_t start, uint64_t end) {
    return guarded(fabric, [&] { fabric->add_outage(source, port, start, end); });
}

int sn_set_value(Fabric* fabric, uint32_t node, uint32_t tile, const char* role,
                 const uint8_t* data, uint64_t bytes) {
    return guarded(fabric, [&] { fabric->set_value(node, tile, role, data, bytes); });
}

int sn_start(Fabric* fabric) {
    return guarded(fabric, [&] { fabric->start(); });
}

// Cycles [from, end) of a tile, whose model is built with waves, go to a file; after sn_start.
int sn_show(Fabric* fabric, uint32_t node, uint32_t tile, const char* path, uint64_t from,
            uint64_t end) {
    return guarded(fabric, [&] {
        fabric->node(node).tiles.at(tile).model->show(path, from, end);
    });
}

// Closes the file, if one was begun.
int sn_finish_waves(Fabric* fabric, uint32_t node, uint32_t tile) {
    return guarded(fabric, [&] {
        fabric->node(node).tiles.at(tile).model->finish(fabric->cycle());
    });
}

// The other processes that run nodes; before sn_start.
void sn_set_peers(Fabric* fabric, const Peers* peers) { fabric->set_peers(*peers); }

// In a peer's `send`: what is to go to another process, in bytes, which stay until the next window.
uint64_t sn_mail(Fabric* fabric, uint32_t rank, const void** data) {
    const supernode::Mail& mail = fabric->mail(rank);
    *data = mail.data();
    return mail.size() * sizeof(uint64_t);
}

// In a peer's `receive`: what another process has sent.
int sn_give(Fabric* fabric, const uint64_t* data, uint64_t bytes) {
    return guarded(fabric, [&] { fabric->give(data, bytes / sizeof(uint64_t)); });
}

// Bytes that a word of a link that begins or ends here takes in a message.
uint64_t sn_mail_bytes(Fabric* fabric, uint32_t link) {
    for (auto& each : fabric->links())
        if (each->number == link) return supernode::Mail::size(each->length) * sizeof(uint64_t);
    return 0;
}

// Keep track of what stands on links, from now on; all have words of this format.
int sn_watch(Fabric* fabric, const FlowFormat* format) {
    return guarded(fabric, [&] {
        fabric->watch(*format);
    });
}

// Per link and virtual channel: flits sent, and flits told freed of the opposite link, as far as the
// nodes of this process say.
void sn_channels(Fabric* fabric, uint64_t* counts) {
    for (auto& link : fabric->links()) {
        uint64_t* at = counts + 2 * link->number * link->flow->channels().size();
        for (auto& channel : link->flow->channels()) {
            *at++ = channel.sent;
            *at++ = channel.told;
        }
    }
}

// The last packets of a channel, the oldest first, at most `room`; returns how many.
uint32_t sn_packets(Fabric* fabric, uint32_t number, uint32_t vc, FlowPacket* packets,
                    uint32_t room) {
    const auto& links = fabric->links();
    const auto link = std::find_if(links.begin(), links.end(),
                                   [&](auto& each) { return each->number == number; });
    if (link == links.end()) return 0;
    const auto& known = (*link)->flow->channels().at(vc).packets;
    const size_t count = std::min<size_t>(room, known.size());
    std::copy(known.end() - count, known.end(), packets);
    return count;
}

// Measure what time is spent on, from now on.
void sn_measure(Fabric* fabric) { fabric->measure(); }

// Of one thread: windows, processor time in them, and of the ticks that were measured those of each
// Work.
void sn_profile(Fabric* fabric, uint32_t thread, uint64_t* figures) {
    const Profile& profile = *fabric->partitions().at(thread)->profile;
    *figures++ = profile.windows();
    *figures++ = profile.window_ns();
    for (unsigned work = 0; work < static_cast<unsigned>(Work::count); ++work)
        *figures++ = profile.ticks(static_cast<Work>(work));
}

// Of one thread: ticks that were measured of evaluations of tiles that are of the kind of this one.
uint64_t sn_profile_tile(Fabric* fabric, uint32_t thread, uint32_t node, uint32_t tile) {
    const unsigned kind = fabric->node(node).tiles.at(tile).kind;
    return fabric->partitions().at(thread)->profile->ticks(kind);
}

uint64_t sn_cycle(Fabric* fabric) { return fabric->cycle(); }

// Nodes that have something to do before the next instant of the host.
uint32_t sn_active(Fabric* fabric) { return fabric->active(); }

int sn_run(Fabric* fabric, const Condition* conditions, uint32_t count, uint64_t deadline,
           double seconds) {
    if (!fabric->error.empty()) return static_cast<int>(Outcome::failed);
    try {
        return static_cast<int>(
            fabric->run({conditions, conditions + count}, deadline, seconds));
    } catch (const std::exception& problem) {
        fabric->error = problem.what();
        return static_cast<int>(Outcome::failed);
    }
}

int sn_host_operation(Fabric* fabric, uint32_t node, uint32_t write, uint32_t offset,
                      uint64_t value) {
    return guarded(fabric, [&] {
        fabric->node(node).host_operation(
            fabric->cycle(), {write != 0, static_cast<uint16_t>(offset), value});
    });
}

// 1 and the oldest result if a read has returned, otherwise 0.
int sn_host_result(Fabric* fabric, uint32_t node, uint64_t* value) {
    auto& results = fabric->node(node).host_results;
    if (results.empty()) return 0;
    *value = results.front();
    results.pop_front();
    return 1;
}

void sn_node_status(Fabric* fabric, uint32_t number, NodeStatus* status) {
    Node& node = fabric->node(number);
    *status = {};
    status->host_operations = node.host_pending();
    status->host_reads = node.host_reads_pending;
    for (Tile& tile : node.tiles) {
        for (auto& port : tile.reads) {
            status->memory_reads += port.outstanding();
            status->read_requests += port.offered();
        }
        for (auto& port : tile.writes) status->write_requests += port.offered();
    }
    for (auto& port : node.links)
        if (port.in) status->words_arriving += port.in->words.size();
    for (size_t index = 0; index < node.joints.size(); ++index) {
        const supernode::Joint& joint = node.joints[index];
        const uint8_t ready = *(joint.in.ready ? joint.in.ready : joint.out.ready);
        if (*joint.out.valid && !ready) status->streams_blocked |= 1u << index;
    }
    status->completions = node.completions();
}

void sn_tile_status(Fabric* fabric, uint32_t node, uint32_t tile, TileStatus* status) {
    const Tile& asked = fabric->node(node).tiles[tile];
    *status = {asked.wake, asked.evaluations, asked.idle, 0};
}

// Per node of this process: cycles in which a tile was evaluated.
void sn_stepped(Fabric* fabric, uint64_t* counts) {
    for (auto& node : fabric->nodes()) counts[node->number] = node->stepped;
}

// Per node of this process that has so many tiles: evaluations of one of them.
void sn_evaluations(Fabric* fabric, uint32_t tile, uint64_t* counts) {
    for (auto& node : fabric->nodes())
        if (tile < node->tiles.size()) counts[node->number] = node->tiles[tile].evaluations;
}

// Per link, in the order in which they were connected: what the nodes of this process have sent.
void sn_link_counts(Fabric* fabric, LinkCounts* counts) {
    for (auto& link : fabric->links()) counts[link->number] = link->counts;
}

// The bits that would be flipped of a word that leaves by this port in this cycle; returns whether
// there are any. `word` is to be zero.
int sn_error_bits(Fabric* fabric, uint32_t source, uint32_t port, uint64_t cycle, uint32_t* word) {
    const auto& faults = fabric->link(source, port).faults;
    if (!faults || !faults->errors.strikes(cycle)) return 0;
    faults->errors.flip(cycle, word);
    return 1;
}

// Edges one tile `count` times, out of time. Only for measuring: harmless while the tile is idle and
// its inputs are empty, since it changes nothing then.
void sn_exercise(Fabric* fabric, uint32_t node, uint32_t tile, uint64_t count) {
    supernode::Model& model = *fabric->node(node).tiles[tile].model;
    for (uint64_t done = 0; done < count; ++done) model.edge(fabric->cycle());
}

// Events before the present cycle, which are not given again.
uint64_t sn_log_take(Fabric* fabric, const Event** events) {
    const auto& log = fabric->log.take(fabric->cycle());
    *events = log.data();
    return log.size();
}

// Names the arrangement of a tile's state.
const char* sn_layout(Fabric* fabric, uint32_t node, uint32_t tile) {
    const supernode::Model* model = fabric->node(node).tiles[tile].model;
    return model ? model->layout() : "one of the flat design";
}

// Parts of the state: see checkpoint.hpp.
uint32_t sn_parts(Fabric* fabric) { return supernode::parts(*fabric); }

// Hands over the bytes of a part, which live until the next call.
int sn_save(Fabric* fabric, uint32_t part, const uint8_t** data, uint64_t* bytes) {
    return guarded(fabric, [&] {
        fabric->saved = supernode::save(*fabric, part);
        *data = fabric->saved.data();
        *bytes = fabric->saved.size();
    });
}

int sn_restore(Fabric* fabric, uint32_t part, const uint8_t* data, uint64_t bytes) {
    return guarded(fabric, [&] { supernode::restore(*fabric, part, data, bytes); });
}

// In place of sn_start, when all parts are restored.
int sn_resume(Fabric* fabric) {
    return guarded(fabric, [&] { fabric->resume(); });
}

uint64_t sn_log(Fabric* fabric, const Event** events) {
    const auto& log = fabric->log.sorted();
    *events = log.data();
    return log.size();
}

}  // extern "C"
#pragma GCC visibility pop
