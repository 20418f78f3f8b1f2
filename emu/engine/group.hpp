// What the scheduler runs: nodes that advance together through a window.
//
// Where the first tile of a node is a model of its own, a node is a group. A lane-parallel model is
// the first tile of several nodes at once, a lane each, and one edge advances all of them; so these
// nodes are a group. A lane whose node is at rest comes along for nothing: an idle tile with empty
// inputs does not change.
#pragma once

#include <string>
#include <vector>

#include "node.hpp"

namespace supernode {

class Group {
  public:
    // `model` is what the first tiles share; null where a fabric is one flat model.
    Group(std::string model_name, Model* model) : model_name{std::move(model_name)}, model{model} {}

    // Nodes come in the order of their numbers, without gaps.
    void add(Node& node) { nodes_.push_back(&node); }
    unsigned size() const { return nodes_.size(); }
    unsigned last() const { return nodes_.back()->number; }
    unsigned lanes() const { return model ? model->views.size() : 1; }
    // Runs cycles [start, end), skipping those in which nothing can happen; a profile is a Profile
    // or NoProfile.
    template <typename Profiled>
    void run(uint64_t start, uint64_t end, Profiled& profile);
    // It does nothing from now on, unless a word arrives.
    void retire();
    template <typename A>
    void archive(A& a) {
        // Lanes are shared out to threads, so a group of lanes may be another one elsewhere.
        const uint64_t mine[2] = {nodes_.front()->number, nodes_.size()};
        uint64_t saved[2] = {mine[0], mine[1]};
        a(saved[0], saved[1]);
        if (saved[0] != mine[0] || saved[1] != mine[1])
            throw std::runtime_error("the lanes of " + model_name + " were shared out otherwise: "
                                     "accepted is the number of threads that it was saved with");
        if (model) a(*model);
        for (Node* node : nodes_) a(*node);
    }

    // One of the nodes has a link to another process.
    bool border = false;
    const std::string model_name;
    Model* const model;

  private:
    template <typename Profiled>
    void run_lanes(uint64_t start, uint64_t end, Profiled& profile);
    // First event of its nodes.
    uint64_t first() const;

    std::vector<Node*> nodes_;
    std::vector<Node*> awake_;
};

}  // namespace supernode
