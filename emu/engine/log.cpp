#include "log.hpp"

#include <algorithm>
#include <tuple>

namespace supernode {

const std::vector<Event>& EventLog::sorted() {
    const auto key = [](const Event& event) {
        return std::tuple(event.cycle, event.node, event.port, event.kind);
    };
    std::sort(events_.begin(), events_.end(),
              [&](const Event& a, const Event& b) { return key(a) < key(b); });
    return events_;
}

}  // namespace supernode
