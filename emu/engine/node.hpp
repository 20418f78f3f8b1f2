// One node: its tiles, its memory if it has one, the host's side of it, and its link ports.
//
// A cycle has two halves. `exchange` reads the outputs of cycle t, which are functions of registers
// alone, and from them computes the inputs of cycle t; then every tile that may change gets its
// clock edge. A tile is left out while it says `idle`, nothing arrives, and cycle t is before its
// `wake`.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint.hpp"
#include "link.hpp"
#include "log.hpp"
#include "memory.hpp"
#include "pins.hpp"
#include "profile.hpp"
#include "ring.hpp"
#include "settings.hpp"

namespace supernode {

// One tile as its node runs it.
struct Tile {
    Model* model = nullptr;  // null in a flat fabric, where all tiles share one
    TilePins* pins = nullptr;
    uint64_t offers = 0;  // in this cycle: bits as in TilePins
    uint64_t wake = 0;
    uint64_t evaluations = 0;
    bool idle = false;
    bool moved = true;  // since streams were looked at
    unsigned kind = 0;  // tiles of one model are of one kind
    // The first bit of each of these in `offers`, and of its reads among what a node waits for.
    unsigned first_read = 0, first_write = 0, host = 0, first_stream = 0, first_due = 0;
    std::vector<ReadPort> reads;
    std::vector<WritePort> writes;
    std::vector<uint64_t> activity;  // as it was logged last

    uint64_t look() const { return pins->offers.at ? pins->offers.get() : pins->look(); }
    void refresh() {
        idle = *pins->idle;
        wake = *pins->wake == no_wake ? NEVER : *pins->wake;
    }
    bool quiet(uint64_t t) const { return idle && t < wake; }
    void edge(uint64_t t) {
        model->edge(t);
        refresh();
        ++evaluations;
        moved = true;
    }
    template <typename A>
    void archive(A& a) {
        a(idle, wake, evaluations, activity);
        for (ReadPort& port : reads) a(port);
    }
};

struct LinkPort {
    Link* out = nullptr;
    Link* in = nullptr;
    const uint32_t* tx = nullptr;
    uint32_t* rx = nullptr;
};

// A stream from one tile to another; `in` is null where they are joined inside their model.
struct Joint {
    unsigned source, bit;  // which of its outputs
    unsigned sink;
    StreamPins out, in;
    bool ready = false, driven = false;  // pins as they are: `out.ready`, `in.valid`

    template <typename A>
    void archive(A& a) {
        a(ready, driven);
    }
};

struct HostOperation {
    bool write;
    uint16_t address;
    uint64_t data;
};

class Node {
  public:
    // Pins that are taken through registers reach them in the first cycles, whatever `idle` says
    // by then.
    static constexpr uint64_t settling_cycles = 8;

    Node(unsigned number, const NodeSpec& spec, std::vector<Tile> tiles, const Settings& settings,
         EventLog& log, uint64_t& next, uint64_t& progress);
    Node(const Node&) = delete;

    // Runs cycles [start, end), skipping those in which nothing can happen. Here and below, a
    // profile is a Profile or NoProfile.
    template <typename Profiled>
    void run(uint64_t start, uint64_t end, Profiled& profile);
    // The same for one cycle, where the first tile's model is shared with other nodes: `begin`
    // computes inputs and says whether that tile is to get an edge, `finish` comes after it.
    template <typename Profiled>
    bool begin(uint64_t t, Profiled& profile);
    template <typename Profiled>
    void finish(uint64_t t, Profiled& profile);
    // Computes the inputs of cycle t.
    template <typename Profiled>
    void exchange(uint64_t t, Profiled& profile);
    void refresh();
    // Logs what tiles do from cycle t on, where that is something else than before.
    void observe(uint64_t t);
    // First cycle from t on in which this node, left alone, could change.
    uint64_t next_event(uint64_t t) const;

    void host_operation(uint64_t now, HostOperation operation);
    uint32_t completions() const { return host_pins_.valid ? *host_pins_.completions : 0; }
    // The `up` pin of a link port changes in a cycle to come.
    void add_signal(uint64_t cycle, unsigned port, bool level);
    TilePins& front() const { return *tiles[0].pins; }
    // Where the next arrival at a link port is kept.
    uint64_t& due(unsigned port) { return due_[port]; }
    // With the links that lead here; the first tile's model is its group's.
    template <typename A>
    void archive(A& a) {
        for (Tile& tile : tiles) {
            a(tile);
            if (tile.model && &tile != &tiles.front()) a(*tile.model);
        }
        for (LinkPort& port : links)
            if (port.in) a(*port.in);
        for (Joint& joint : joints) a(joint);
        a(host_results, host_reads_pending, stepped, next, host_times_, host_free_, host_driven_,
          skip_from_, stirred_, holding_, next_signal_, signal_time_);
    }

    const unsigned number;
    const std::string name;
    std::vector<Tile> tiles;
    std::vector<LinkPort> links;
    std::vector<Joint> joints;
    std::deque<uint64_t> host_results;
    uint64_t host_reads_pending = 0;
    uint64_t stepped = 0;  // cycles in which a tile was evaluated
    // No event before this cycle. The scheduler keeps these of all nodes side by side, so that a
    // window over many sleeping nodes touches few cache lines.
    uint64_t& next;

    uint64_t host_pending() const { return host_times_.size(); }

  private:
    struct Signal {
        uint64_t cycle;
        unsigned port;
        bool level;
    };

    void join_streams();
    // Edges of the tiles from `first` on that cycle t may change; `evaluated` says whether one
    // before them has had its own.
    template <typename Profiled>
    void edges(unsigned first, uint64_t t, bool evaluated, Profiled& profile);
    bool resting() const;
    // Whether cycle t may change a tile that has received something, or not.
    bool stirs(unsigned index, uint64_t t) const {
        return t < skip_from_ || !tiles[index].quiet(t) || stirred_ >> index & 1;
    }
    // An idle tile's outputs are empty and need no look. Where nothing is skipped they get one all
    // the same, so that a tile whose `idle` lies is found by comparing the two ways to run it.
    bool loud(const Tile& tile, uint64_t t) const { return t < skip_from_ || !tile.idle; }
    // What has come due in cycle t: a bit per link port, then per read port of each tile.
    uint64_t due_by(uint64_t t) const {
        uint64_t bits = 0;
        for (size_t at = 0; at < due_.size(); ++at) bits |= uint64_t{due_[at] <= t} << at;
        return bits;
    }
    // Ports are given as bits.
    void send(uint64_t t, uint64_t ports);
    // False if the word is lost; sets `struck` if bits of it are to be flipped.
    bool passes(uint64_t t, unsigned port, bool flit, bool& struck);
    void receive(uint64_t arrived);
    bool host(uint64_t t);
    bool signal(uint64_t t);
    unsigned memory(uint64_t t, uint64_t due);
    unsigned streams(uint64_t t);
    void log_link(uint64_t t, unsigned port, uint64_t control, const uint32_t* word);
    void log_header(uint64_t t, unsigned port, const uint32_t* word);

    uint64_t link_bits_ = 0;
    uint64_t holding_ = 0;  // of what was due, that which pins still hold
    unsigned stirred_ = 0;  // a bit per tile that receives something in this cycle
    bool host_driven_ = false, has_memory_ = false;
    uint64_t skip_from_;
    uint64_t signal_time_ = NEVER, host_due_ = NEVER;
    std::vector<uint64_t> due_;  // when something is for each link port and each read port
    HostPins host_pins_;
    EventLog& log_;
    uint64_t& progress_;  // flits, memory and host accesses, transfers between tiles
    Memory memory_;
    LinkFormat format_;
    TimedRing host_times_;
    uint64_t host_free_ = 0;
    const bool observed_, logged_;
    std::vector<Signal> signals_;  // in rising order; those before next_signal_ are past
    size_t next_signal_ = 0;
};

}  // namespace supernode
