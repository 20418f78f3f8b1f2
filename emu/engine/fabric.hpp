// The scheduler: cards, links between them, windows and time.
//
// A word that leaves in cycle t arrives in cycle t + latency, so no card can influence another one
// within a window of at most `latency` cycles. A window is run card by card, each for all its
// cycles while its state is hot in cache. Host operations exist only at multiples of the quantum,
// and no window crosses one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "card.hpp"
#include "settings.hpp"

namespace supernode {

struct Condition {
    uint32_t rank;
    uint32_t total;
};

enum class Outcome : int {
    met = 0,       // every condition holds
    deadline = 1,  // time is up
    slice = 2,     // wall time for this call is up: call again
    dead = 3,      // nothing can ever happen again
    stalled = 4,   // cycles pass and nothing moves
    failed = 5,    // the run broke a rule: see error()
};

class Fabric {
  public:
    explicit Fabric(const Settings& settings) : settings_{settings}, next_(settings.cards) {
        log.enabled = settings.event_log;
    }
    Fabric(const Fabric&) = delete;

    void add_card(uint8_t* memory);
    void connect(unsigned source, unsigned source_port, unsigned target, unsigned target_port);
    void set_value(unsigned rank, unsigned tile, const std::string& role, const uint8_t* data,
                   size_t bytes);
    // Resets every tile; to be called once, when all values are set.
    void start();

    // Runs until a boundary at which all conditions hold or at which `deadline` has come; at most
    // about `seconds` of wall time. Without conditions only the deadline ends it.
    Outcome run(const std::vector<Condition>& conditions, uint64_t deadline, double seconds);

    Card& card(unsigned rank) { return *cards_.at(rank); }
    size_t size() const { return cards_.size(); }
    uint64_t cycle() const { return now_; }
    bool reaches(const Condition& condition) const;

    EventLog log;
    std::string error;

  private:
    void run_quantum();
    void run_window(uint64_t start, uint64_t end);
    uint64_t next_event() const;
    uint64_t progress() const;

    const Settings settings_;
    std::vector<uint64_t> next_;  // per card; see Card::next
    uint64_t now_ = 0;
    uint64_t last_progress_ = 0, stagnant_ = 0;
    std::unique_ptr<Model> flat_;
    std::vector<std::unique_ptr<Model>> models_;
    std::vector<std::unique_ptr<Card>> cards_;
};

}  // namespace supernode
