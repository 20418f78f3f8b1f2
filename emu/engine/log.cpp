#include "log.hpp"

#include <algorithm>
#include <tuple>

namespace supernode {

namespace {

void sort(std::vector<Event>& events) {
    const auto key = [](const Event& event) {
        return std::tuple(event.cycle, event.node, event.port, event.kind);
    };
    std::sort(events.begin(), events.end(),
              [&](const Event& a, const Event& b) { return key(a) < key(b); });
}

}  // namespace

void EventLog::absorb(EventLog& other) {
    if (events_.empty()) events_.swap(other.events_);
    events_.insert(events_.end(), other.events_.begin(), other.events_.end());
    other.events_.clear();
}

const std::vector<Event>& EventLog::sorted() {
    sort(events_);
    return events_;
}

const std::vector<Event>& EventLog::take(uint64_t cycle) {
    const auto later = std::partition(events_.begin(), events_.end(),
                                      [&](const Event& event) { return event.cycle < cycle; });
    taken_.assign(events_.begin(), later);
    events_.erase(events_.begin(), later);
    sort(taken_);
    return taken_;
}

}  // namespace supernode
