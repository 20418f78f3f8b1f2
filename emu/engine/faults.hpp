// What befalls the words of one directed link: bit errors, and times at which it is down.
//
// Everything is a pure function of (seed, link, cycle in which a word leaves), so that it does not
// depend on how the fabric is run.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "bits.hpp"

namespace supernode {

// Independent errors of equal probability in given bits of each word.
//
// Time is cut into slots of `burst` cycles. One hash decides for a slot whether its words are
// struck, with the probability that some bit of a word errs; a word that is struck has at least one
// error. So words err independently if a slot is one cycle, and together within longer ones.
class BitErrors {
  public:
    BitErrors() = default;
    BitErrors(const std::vector<Field>& fields, double rate, uint64_t burst, uint64_t seed);

    bool strikes(uint64_t t) const { return mix(seed_ + (t + phase_) / burst_) < below_; }
    // Flips bits of a word that is struck: the positions of successes of Bernoulli trials, given
    // that there is one.
    void flip(uint64_t t, uint32_t* word) const;

  private:
    std::vector<uint16_t> bits_;  // those that can err
    uint64_t seed_ = 0, phase_ = 0, burst_ = 1;
    uint64_t below_ = 0;      // a hash below this strikes
    double word_rate_ = 0;    // probability that a word errs
    double log_right_ = -1;   // logarithm of the probability that a bit is right
};

struct Outage {
    uint64_t start, end;
};

struct Faults {
    BitErrors errors;
    std::vector<Outage> outages;  // in rising order, apart from each other
    size_t past = 0;              // outages that are over

    // Is the link down in a cycle of [from, to]? Asked with rising times.
    bool down(uint64_t from, uint64_t to) {
        while (past < outages.size() && outages[past].end <= from) ++past;
        return past < outages.size() && outages[past].start <= to;
    }
    template <typename A>
    void archive(A& a) {
        a(past);
    }
};

}  // namespace supernode
