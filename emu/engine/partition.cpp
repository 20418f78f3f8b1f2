#include "partition.hpp"

#include <algorithm>
#include <exception>

namespace supernode {

void Partition::add(unsigned number) {
    if (ranges_.empty() || ranges_.back().end != number)
        ranges_.push_back({number, number});
    ++ranges_.back().end;
}

void Partition::run(uint64_t start, uint64_t end, Part part) {
    NoProfile none;
    const bool measured = profile && profile->begin();
    if (measured)
        run_groups(start, end, part, *profile);
    else
        run_groups(start, end, part, none);
    if (profile) profile->end();
}

template <typename Profiled>
void Partition::run_groups(uint64_t start, uint64_t end, Part part, Profiled& profiled) {
    for (const Range& range : ranges_)
        for (unsigned number = range.first; number < range.end; ++number) {
            if (next_[number] >= end) continue;
            Group& group = *group_of_[number];
            if (part == Part::all || group.border == (part == Part::border)) {
                try {
                    group.run(start, end, profiled);
                } catch (const RuleBroken& problem) {
                    fail(problem);
                    group.retire();
                } catch (const std::exception& problem) {
                    fail({start, number, problem.what()});
                    group.retire();
                }
            }
            number = group.last();
        }
}

uint64_t Partition::next_event() const {
    uint64_t event = NEVER;
    for (const Range& range : ranges_)
        event = std::min(event,
                         *std::min_element(&next_[range.first], &next_[range.first] + (range.end - range.first)));
    return event;
}

}  // namespace supernode
