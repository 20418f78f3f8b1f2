// The C ABI, loaded with ctypes. Functions that can fail return a negative number and leave a
// message in sn_error.
#include <cstring>
#include <exception>

#include "fabric.hpp"

using supernode::Card;
using supernode::Condition;
using supernode::Event;
using supernode::Fabric;
using supernode::Outcome;
using supernode::Settings;

namespace {

template <typename Action>
int guarded(Fabric* fabric, Action action) {
    try {
        return action();
    } catch (const std::exception& problem) {
        fabric->error = problem.what();
        return -1;
    }
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// What one card is doing; for reports.
struct CardStatus {
    uint64_t network_wake, compute_wake;
    uint64_t host_operations, host_reads;
    uint64_t memory_reads;         // requests that wait for their response
    uint64_t words_arriving;       // on the links to this card
    uint32_t network_idle, compute_idle;
    uint32_t read_requests, write_requests;  // ports with a request on offer
    uint32_t gemm_blocked, done_blocked;
    uint32_t completions, reserved;
};

struct CardStatistics {
    uint64_t stepped, network_evaluations, compute_evaluations;
};

Fabric* sn_create(const Settings* settings) { return new Fabric{*settings}; }

void sn_destroy(Fabric* fabric) { delete fabric; }

const char* sn_error(Fabric* fabric) { return fabric->error.c_str(); }

int sn_add_card(Fabric* fabric, uint8_t* memory) {
    return guarded(fabric, [&] { return fabric->add_card(memory), 0; });
}

int sn_connect(Fabric* fabric, uint32_t source, uint32_t source_port, uint32_t target,
               uint32_t target_port) {
    return guarded(fabric, [&] {
        return fabric->connect(source, source_port, target, target_port), 0;
    });
}

int sn_set_value(Fabric* fabric, uint32_t rank, uint32_t tile, const char* role,
                 const uint8_t* data, uint64_t bytes) {
    return guarded(fabric, [&] { return fabric->set_value(rank, tile, role, data, bytes), 0; });
}

int sn_start(Fabric* fabric) {
    return guarded(fabric, [&] { return fabric->start(), 0; });
}

uint64_t sn_cycle(Fabric* fabric) { return fabric->cycle(); }

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

void sn_host_write(Fabric* fabric, uint32_t rank, uint32_t offset, uint64_t value) {
    fabric->card(rank).host_operation(fabric->cycle(),
                                      {true, static_cast<uint16_t>(offset), value});
}

void sn_host_read(Fabric* fabric, uint32_t rank, uint32_t offset) {
    fabric->card(rank).host_operation(fabric->cycle(), {false, static_cast<uint16_t>(offset), 0});
}

// 1 and the oldest result if a read has returned, otherwise 0.
int sn_host_result(Fabric* fabric, uint32_t rank, uint64_t* value) {
    auto& results = fabric->card(rank).host_results;
    if (results.empty()) return 0;
    *value = results.front();
    results.pop_front();
    return 1;
}

uint32_t sn_completions(Fabric* fabric, uint32_t rank) {
    return fabric->card(rank).completions();
}

void sn_card_status(Fabric* fabric, uint32_t rank, CardStatus* status) {
    Card& card = fabric->card(rank);
    *status = {};
    status->network_idle = card.tiles[Card::network].idle;
    status->compute_idle = card.tiles[Card::compute].idle;
    status->network_wake = card.tiles[Card::network].wake;
    status->compute_wake = card.tiles[Card::compute].wake;
    status->host_operations = card.host_pending();
    status->host_reads = card.host_reads_pending;
    for (auto& port : card.reads) {
        status->memory_reads += port.outstanding();
        status->read_requests += port.offered();
    }
    for (auto& port : card.writes) status->write_requests += port.offered();
    for (auto& link : card.links) status->words_arriving += link.arrivals.size();
    status->gemm_blocked = card.stream_blocked(true);
    status->done_blocked = card.stream_blocked(false);
    status->completions = card.completions();
}

void sn_card_statistics(Fabric* fabric, uint32_t rank, CardStatistics* statistics) {
    Card& card = fabric->card(rank);
    *statistics = {card.stepped, card.tiles[Card::network].evaluations,
                   card.tiles[Card::compute].evaluations};
}

// Flits and words that link port `port` of card `rank` has sent.
void sn_link_statistics(Fabric* fabric, uint32_t rank, uint32_t port, uint64_t* flits,
                        uint64_t* words) {
    const auto& link = fabric->card(rank).links.at(port);
    *flits = link.flits;
    *words = link.words;
}

// Edges one tile `count` times, out of time. Only for measuring: harmless while the tile is idle and
// its inputs are empty, since it changes nothing then.
void sn_exercise(Fabric* fabric, uint32_t rank, uint32_t tile, uint64_t count) {
    supernode::Model& model = *fabric->card(rank).tiles[tile].model;
    for (uint64_t done = 0; done < count; ++done) model.edge(fabric->cycle());
}

uint64_t sn_log(Fabric* fabric, const Event** events) {
    const auto& log = fabric->log.sorted();
    *events = log.data();
    return log.size();
}

}  // extern "C"
#pragma GCC visibility pop
