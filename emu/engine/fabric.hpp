// The scheduler: nodes, links between them, windows and time.
//
// A word that leaves in cycle t arrives in cycle t + latency of its link, so no node can influence
// another one within a window of at most the smallest latency. A window is run node by node, each
// for all its cycles while its state is hot in cache. Host operations exist only at multiples of the
// quantum, and no window crosses one.
//
// Nodes are shared out among threads, and those of a larger machine among processes. Every window is
// a turn of the threads. What they send each other lies in outboxes until the turn is over; the next
// one begins with taking it in. While only one thread has events, it runs ahead alone, window by
// window, until another one has some.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "group.hpp"
#include "node.hpp"
#include "partition.hpp"
#include "peers.hpp"
#include "settings.hpp"
#include "team.hpp"

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
    explicit Fabric(const Settings& settings);
    Fabric(const Fabric&) = delete;

    void add_node(const NodeSpec& spec);
    void connect(const LinkSpec& spec);
    // The other processes; to be called before start, where there are such.
    void set_peers(const Peers& peers) { peers_ = peers; }
    // Of the link that leaves a port.
    void set_errors(unsigned source, unsigned port, const std::vector<Field>& fields, double rate,
                    uint64_t burst);
    // That link is down from `start` until `end`; of one link, in rising order.
    void add_outage(unsigned source, unsigned port, uint64_t start, uint64_t end);
    void set_value(unsigned node, unsigned tile, const std::string& role, const uint8_t* data,
                   size_t bytes);
    // Resets every tile; to be called once, when all values are set.
    void start();
    // In its place where the state has been restored.
    void resume();

    // Runs until a boundary at which all conditions hold or at which `deadline` has come; at most
    // about `seconds` of wall time. Without conditions only the deadline ends it.
    Outcome run(const std::vector<Condition>& conditions, uint64_t deadline, double seconds);

    // From now on, note what stands on each link.
    void watch(const FlowFormat& format);
    // From now on, measure what time is spent on; a flat design is not measured.
    void measure();
    // Of each thread, once that is so.
    const std::vector<std::unique_ptr<Partition>>& partitions() const { return partitions_; }

    // What border nodes have sent to another process in this window; it stays until the next one.
    const Mail& mail(unsigned rank);
    // What another process has sent.
    void give(const uint64_t* records, size_t size);

    // Nodes are numbered in the order in which they were added, those of other processes included.
    Node& node(unsigned number) const;
    Link& link(unsigned source, unsigned port);
    // Those of this process, and links that begin or end at one of them.
    const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
    const std::vector<std::unique_ptr<Link>>& links() const { return links_; }
    const std::vector<std::unique_ptr<Group>>& groups() const { return groups_; }
    uint64_t cycle() const { return now_; }
    // True for a node of another process.
    bool reaches(const Condition& condition) const;
    // Nodes that have something to do before the next boundary.
    unsigned active() const;

    // All but the groups.
    template <typename A>
    void archive(A& a) {
        a(now_, progress_, last_progress_, stagnant_, log);
        if (flat_) a(*flat_);
    }

    EventLog log;
    std::string error;
    std::vector<uint8_t> saved;  // the part of the state that was asked for last

  private:
    // What threads do next.
    struct Plan {
        uint64_t start, end;  // of the window
        Part part;
        unsigned side;  // of outboxes that is written
        int alone;      // the only thread that runs, until `end`; or -1
    };
    // The first event, whose it is, and the first one of the other threads.
    struct Busiest {
        uint64_t first;
        unsigned thread;
        uint64_t second;
    };

    Model& add_model(const std::string& name);
    // The group of a thread in which the next node finds a lane of this model.
    Group& group(const std::string& model, unsigned thread);
    Link* find_link(unsigned source, unsigned port);
    Faults& faults(Link& link);

    // True if there is a quantum to run from the present on; otherwise sets the outcome.
    bool settle();
    // The next turn; false at the end of the run.
    bool plan(unsigned thread);
    void take_turn(unsigned thread);
    bool failed() const;
    Busiest busiest() const;
    // First event of a thread's nodes, words on their way to it included.
    uint64_t next_event(unsigned thread) const;
    uint64_t next_event() const;
    // Takes in what was sent to a thread's nodes; `side` is that which was written.
    void deliver(unsigned thread, unsigned side);
    // Runs one thread's nodes from `start` until `limit`, or until a word of theirs gets to another
    // thread's; returns the cycle that has come.
    uint64_t run_alone(unsigned thread, uint64_t start, uint64_t limit);
    void run_flat(uint64_t start, uint64_t end);
    // What threads have counted and logged.
    void gather();

    const Settings settings_;
    FlowFormat flow_format_{};
    std::vector<uint64_t> next_;  // per node; see Node::next
    uint64_t now_ = 0, boundary_ = 0;
    uint64_t progress_ = 0, last_progress_ = 0, stagnant_ = 0;
    uint64_t passed_ = 0;  // since the last boundary at which processes agreed
    std::unique_ptr<Model> flat_;
    size_t flat_views_ = 0;  // of it, those that nodes have
    std::vector<std::unique_ptr<Model>> models_;
    std::vector<std::unique_ptr<Node>> nodes_;
    std::vector<std::unique_ptr<Group>> groups_;
    std::vector<std::unique_ptr<Link>> links_;
    // By number; null of another process.
    std::vector<Node*> node_of_;
    std::vector<Group*> group_of_;
    std::vector<Link*> link_of_;
    std::vector<uint32_t> rank_of_, thread_of_;
    std::vector<std::string> names_, tile_kinds_;
    std::vector<std::unique_ptr<Partition>> partitions_;  // one per thread
    std::optional<Peers> peers_;
    std::vector<Outbox> foreign_;  // from other processes, to each thread
    std::vector<Mail> leaving_;    // to other processes

    // Of a run.
    const std::vector<Condition>* conditions_ = nullptr;
    uint64_t deadline_ = 0;
    std::chrono::steady_clock::time_point until_;
    std::optional<Outcome> outcome_;
    Plan plan_{0, 0, Part::all, 0, -1};
    bool cut_off_ = false;  // a call of a peer has failed
    std::optional<Team> team_;
};

}  // namespace supernode
