// One directed link: the words on their way, what befalls them, and what it has carried.
#pragma once

#include <algorithm>
#include <memory>

#include "faults.hpp"
#include "flow.hpp"
#include "mail.hpp"
#include "pins.hpp"
#include "ring.hpp"
#include "settings.hpp"

namespace supernode {

struct Link {
    TimedRing words;
    const unsigned length;  // of a word, in 32-bit words
    uint64_t& next;         // that of the node it leads to
    Outbox* const outbox;   // null: the same thread runs both ends
    std::unique_ptr<Faults> faults;  // null: it carries everything as it is
    std::unique_ptr<Flow> flow;      // null: nobody asks what stands on it
    const LinkSpec spec;
    LinkCounts counts{};
    const unsigned number;  // in the order in which links were connected, of all processes' alike

    // `front` is where the node that it leads to looks for the next arrival; null if another
    // process has that node.
    Link(const LinkSpec& spec, unsigned number, const LinkFormat& format, uint64_t& next,
         Outbox* outbox, uint64_t* front)
        : words{4 * format.words, front ? spec.latency + 1 : 1, front ? *front : unseen_},
          length{format.words},
          next{next},
          outbox{outbox},
          spec{spec},
          number{number} {}

    // Where the word goes that leaves in cycle t.
    uint32_t* send(uint64_t t) {
        const uint64_t arrival = t + spec.latency;
        return outbox ? outbox->mail().put(number, arrival, length) : arrive(arrival);
    }
    // Where the word goes that arrives in this cycle.
    uint32_t* arrive(uint64_t arrival) {
        next = std::min(next, arrival);
        return reinterpret_cast<uint32_t*>(words.push(arrival));
    }
    template <typename A>
    void archive(A& a) {
        a(words, counts);
        if (faults) a(*faults);
        if (flow) a(*flow);
    }

  private:
    uint64_t unseen_ = 0;
};

}  // namespace supernode
