// The scheduler: nodes, links between them, windows and time.
//
// A word that leaves in cycle t arrives in cycle t + latency of its link, so no node can influence
// another one within a window of at most the smallest latency. A window is run node by node, each
// for all its cycles while its state is hot in cache. Host operations exist only at multiples of the
// quantum, and no window crosses one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "group.hpp"
#include "node.hpp"
#include "settings.hpp"

namespace supernode {

struct Condition {
    uint32_t node;
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
    explicit Fabric(const Settings& settings) : settings_{settings}, next_(settings.nodes) {
        log.enabled = settings.event_log;
    }
    Fabric(const Fabric&) = delete;

    void add_node(const NodeSpec& spec);
    void connect(const LinkSpec& spec);
    // Of the link that leaves a port.
    void set_errors(unsigned source, unsigned port, const std::vector<Field>& fields, double rate,
                    uint64_t burst);
    // That link is down from `start` until `end`; of one link, in rising order.
    void add_outage(unsigned source, unsigned port, uint64_t start, uint64_t end);
    void set_value(unsigned node, unsigned tile, const std::string& role, const uint8_t* data,
                   size_t bytes);
    // Resets every tile; to be called once, when all values are set.
    void start();

    // Runs until a boundary at which all conditions hold or at which `deadline` has come; at most
    // about `seconds` of wall time. Without conditions only the deadline ends it.
    Outcome run(const std::vector<Condition>& conditions, uint64_t deadline, double seconds);

    Node& node(unsigned number) { return *nodes_.at(number); }
    Link& link(unsigned source, unsigned port);
    const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
    const std::vector<std::unique_ptr<Link>>& links() const { return links_; }
    uint64_t cycle() const { return now_; }
    bool reaches(const Condition& condition) const;

    EventLog log;
    std::string error;

  private:
    void run_quantum();
    void run_window(uint64_t start, uint64_t end);
    Model& add_model(const std::string& name);
    // The group in which the next node finds a lane of this model.
    Group& group(const std::string& model);
    uint64_t next_event() const;
    Faults& faults(Link& link);

    const Settings settings_;
    std::vector<uint64_t> next_;  // per node; see Node::next
    uint64_t now_ = 0;
    uint64_t progress_ = 0, last_progress_ = 0, stagnant_ = 0;
    std::unique_ptr<Model> flat_;
    size_t flat_views_ = 0;  // of it, those that nodes have
    std::vector<std::unique_ptr<Model>> models_;
    std::vector<std::unique_ptr<Node>> nodes_;
    std::vector<std::unique_ptr<Group>> groups_;
    std::vector<Group*> group_of_;  // per node
    std::vector<std::unique_ptr<Link>> links_;  // in the order in which they were connected
};

}  // namespace supernode
