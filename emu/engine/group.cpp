#include "group.hpp"

#include <algorithm>

namespace supernode {

template <typename Profiled>
void Group::run(uint64_t start, uint64_t end, Profiled& profile) {
    if (lanes() == 1)
        nodes_.front()->run(start, end, profile);
    else
        run_lanes(start, end, profile);
}

template void Group::run(uint64_t, uint64_t, NoProfile&);
template void Group::run(uint64_t, uint64_t, Profile&);

void Group::retire() {
    for (Node* node : nodes_) node->next = NEVER;
}

uint64_t Group::first() const {
    // Nodes keep these side by side.
    const uint64_t* first = &nodes_.front()->next;
    return *std::min_element(first, first + nodes_.size());
}

template <typename Profiled>
void Group::run_lanes(uint64_t start, uint64_t end, Profiled& profile) {
    const uint64_t* next = &nodes_.front()->next;
    for (uint64_t t = std::max(start, first()); t < end; t = std::max(t + 1, first())) {
        awake_.clear();
        bool stirred = false;
        for (size_t lane = 0; lane < nodes_.size(); ++lane) {
            if (next[lane] > t) continue;
            awake_.push_back(nodes_[lane]);
            stirred |= nodes_[lane]->begin(t, profile);
        }
        if (stirred) {
            model->edge(t);
            profile.edge(nodes_.front()->tiles[0].kind);
        }
        for (Node* node : awake_) node->finish(t, profile);
    }
}

}  // namespace supernode
