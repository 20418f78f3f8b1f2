#include "log.hpp"

#include <algorithm>
#include <tuple>

namespace supernode {

void EventLog::absorb(EventLog& other) {
    if (events_.empty()) events_.swap(other.events_);
    events_.insert(events_.end(), other.events_.begin(), other.events_.end());
    other.events_.clear();
}

const std::vector<Event>& EventLog::sorted() {
    const auto key = [](const Event& event) {
        return std::tuple(event.cycle, event.node, event.port, event.kind);
    };
    std::sort(events_.begin(), events_.end(),
              [&](const Event& a, const Event& b) { return key(a) < key(b); });
    return events_;
}

}  // namespace supernode
