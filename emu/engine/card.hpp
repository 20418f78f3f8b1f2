// One card: its tiles, its memory, the host's side of it, and the links that arrive.
//
// A cycle has two halves. `exchange` reads the outputs of cycle t, which are functions of registers
// alone, and from them computes the inputs of cycle t; then every tile that may change gets its
// clock edge. A tile is left out while it says `idle`, nothing arrives, and cycle t is before its
// `wake`.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "log.hpp"
#include "memory.hpp"
#include "pins.hpp"
#include "ring.hpp"
#include "settings.hpp"

namespace supernode {

class Card;

// One tile as the card runs it.
struct Tile {
    Model* model = nullptr;  // null in a flat fabric, where all tiles share one
    TilePins* pins = nullptr;
    bool idle = false;
    uint64_t wake = 0;
    uint64_t evaluations = 0;

    void refresh() {
        idle = *pins->idle;
        wake = *pins->wake == no_wake ? NEVER : *pins->wake;
    }
    bool quiet(uint64_t t) const { return idle && t < wake; }
};

// What a link port carried and where it leads.
struct LinkPort {
    Card* peer = nullptr;
    unsigned peer_port = 0;
    bool receiving = false;  // the rx pins hold a word
    TimedRing arrivals;      // words on their way to this port
    uint64_t flits = 0;      // sent
    uint64_t words = 0;      // sent, words with control alone included
};

struct HostOperation {
    bool write;
    uint16_t address;
    uint64_t data;
};

class Card {
  public:
    static constexpr unsigned network = 0, compute = 1;
    // Configuration reaches registers in the first cycles, whatever `idle` says by then.
    static constexpr uint64_t settling_cycles = 8;

    Card(unsigned rank, uint8_t* memory, const Settings& settings, EventLog& log,
         TilePins& network_pins, TilePins& compute_pins, Model* network_model,
         Model* compute_model, uint64_t& next);
    Card(const Card&) = delete;

    // Runs cycles [start, end), skipping those in which nothing can happen.
    void run(uint64_t start, uint64_t end);
    // Computes the inputs of cycle t; a bit per tile that received something.
    unsigned exchange(uint64_t t);
    void refresh();
    // First cycle from t on in which this card, left alone, could change.
    uint64_t next_event(uint64_t t) const;

    void host_operation(uint64_t now, HostOperation operation);
    uint32_t completions() const { return *host_pins_.completions; }

    const unsigned rank;
    Tile tiles[2];
    std::vector<LinkPort> links;
    std::vector<ReadPort> reads;  // in the order of port numbers, the network tile's first
    std::vector<WritePort> writes;
    std::deque<uint64_t> host_results;
    uint64_t host_reads_pending = 0;
    uint64_t stepped = 0;     // cycles in which a tile was evaluated
    uint64_t progress = 0;    // flits, memory and host accesses, transfers between tiles
    // No event before this cycle. The scheduler keeps these of all cards side by side, so that a
    // window over many sleeping cards touches few cache lines.
    uint64_t& next;

    uint64_t host_pending() const { return host_times_.size(); }
    bool stream_blocked(bool gemm) const;

  private:
    // An idle tile's outputs are empty and need no look. Where nothing is skipped they get one all
    // the same, so that a tile whose `idle` lies is found by comparing the two ways to run it.
    bool loud(unsigned tile, uint64_t t) const { return t < skip_from_ || !tiles[tile].idle; }
    void send(uint64_t t);
    bool receive(uint64_t t);
    bool host(uint64_t t);
    unsigned memory(uint64_t t);
    unsigned streams(uint64_t t);
    void log_link(uint64_t t, unsigned port, uint64_t control, const uint32_t* word);

    const Settings& settings_;
    EventLog& log_;
    Memory memory_;
    LinkFormat format_;
    HostPins host_pins_;
    unsigned network_reads_ = 0, network_writes_ = 0;
    TimedRing host_times_;
    uint64_t host_free_ = 0;
    bool host_driven_ = false, streaming_ = false;
    uint64_t skip_from_;
    bool joined_;  // streams between tiles pass through the engine
};

}  // namespace supernode
