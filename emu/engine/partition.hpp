// The groups that one thread runs.
//
// What its nodes write while a window runs is its own: their state and their `next`, the log, the
// counters, and the outboxes to other partitions.
#pragma once

#include <optional>
#include <vector>

#include "error.hpp"
#include "group.hpp"
#include "log.hpp"
#include "mail.hpp"
#include "profile.hpp"
#include "settings.hpp"

namespace supernode {

// Where other processes run nodes, those linked to them come first, so that their words travel while
// the others are run.
enum class Part { all, border, interior };

class alignas(64) Partition {
  public:
    Partition(const Settings& settings, const std::vector<uint64_t>& next,
              const std::vector<Group*>& group_of)
        : log{settings.event_log}, next_{next}, group_of_{group_of} {}
    Partition(const Partition&) = delete;

    // Nodes come in the order of their numbers.
    void add(unsigned number);
    // Runs cycles [start, end) of its groups, or of some of them, skipping what is at rest. A group
    // that breaks a rule ends where it is; the others go on.
    void run(uint64_t start, uint64_t end, Part part);
    // From now on, measure what windows spend their time on.
    void measure(unsigned kinds) { profile.emplace(kinds); }
    // First event of its nodes.
    uint64_t next_event() const;
    void fail(const RuleBroken& problem) {
        if (!broken || problem.before(*broken)) broken = problem;
    }

    EventLog log;
    uint64_t progress = 0;  // since it was asked last
    uint64_t next = 0;      // the first event, as it was when a window had ended
    std::optional<RuleBroken> broken;
    std::optional<Profile> profile;
    std::vector<Outbox> outboxes;        // to each partition
    std::vector<Outbox> abroad;          // to each process; one side only is used

  private:
    template <typename Profiled>
    void run_groups(uint64_t start, uint64_t end, Part part, Profiled& profiled);

    struct Range {
        unsigned first, end;
    };

    const std::vector<uint64_t>& next_;       // per node of the fabric
    const std::vector<Group*>& group_of_;     // likewise
    std::vector<Range> ranges_;
};

}  // namespace supernode
