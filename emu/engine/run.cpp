// How time passes: quanta, windows, and who runs what in them.
#include <algorithm>
#include <stdexcept>

#include "fabric.hpp"

namespace supernode {

bool Fabric::reaches(const Condition& condition) const {
    const Node* node = node_of_[condition.node];
    // Totals are compared modulo 2^32.
    return !node || static_cast<int32_t>(node->completions() - condition.total) >= 0;
}

Outcome Fabric::run(const std::vector<Condition>& conditions, uint64_t deadline, double seconds) {
    for (const Condition& condition : conditions) node_of_.at(condition.node);
    if (!team_) throw std::runtime_error("the fabric has not been started");
    conditions_ = &conditions;
    deadline_ = deadline;
    until_ = std::chrono::steady_clock::now() +
             std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                 std::chrono::duration<double>(seconds));
    outcome_.reset();
    // The host may have given nodes something to do.
    for (auto& partition : partitions_) partition->next = partition->next_event();
    boundary_ = now_;
    while (!outcome_ && settle()) team_->run();
    // At a boundary, all words are in the queues of their links.
    for (unsigned thread = 0; thread < partitions_.size(); ++thread) deliver(thread, plan_.side);
    gather();
    return *outcome_;
}

void Fabric::gather() {
    for (auto& partition : partitions_) {
        log.absorb(partition->log);
        progress_ += partition->progress;
        partition->progress = 0;
    }
}

bool Fabric::settle() {
    const uint64_t quantum = settings_.quantum;
    for (auto& partition : partitions_) {
        progress_ += partition->progress;
        partition->progress = 0;
    }
    const auto broken = std::min_element(
        partitions_.begin(), partitions_.end(), [](auto& a, auto& b) {
            return a->broken && (!b->broken || a->broken->before(*b->broken));
        });
    const auto& first = (*broken)->broken;
    const bool met = std::all_of(conditions_->begin(), conditions_->end(),
                                 [&](auto& each) { return reaches(each); });
    const uint64_t mine = first ? first->cycle << 16 | first->node : NEVER;
    Vote vote{met, flat_ ? now_ : next_event(), progress_ == last_progress_, mine,
              std::chrono::steady_clock::now() < until_};
    last_progress_ = progress_;
    if (peers_ && !cut_off_ && peers_->agree(&vote)) cut_off_ = true;
    const bool awaited = !conditions_->empty();
    stagnant_ = vote.still ? stagnant_ + passed_ : 0;
    passed_ = 0;

    if (cut_off_) {
        error = "the processes that run the other nodes cannot be reached";
        outcome_ = Outcome::failed;
    } else if (vote.broken != NEVER) {
        error = vote.broken == mine ? first->what() : "a node of another process broke a rule";
        outcome_ = Outcome::failed;
    } else if (awaited && vote.met) {
        outcome_ = Outcome::met;
    } else if (now_ >= deadline_) {
        outcome_ = Outcome::deadline;
    } else if (awaited && stagnant_ >= settings_.patience) {
        stagnant_ = 0;
        outcome_ = Outcome::stalled;
    } else if (awaited && vote.next == NEVER) {
        outcome_ = Outcome::dead;
    } else if (!vote.go) {
        outcome_ = Outcome::slice;
    } else if (vote.next >= now_ + quantum) {
        // Nothing happens at the next boundaries: go on at the last one before the event.
        const uint64_t last = (deadline_ + quantum - 1) / quantum * quantum;
        now_ = std::min(vote.next / quantum * quantum, last);
        if (now_ >= deadline_) outcome_ = Outcome::deadline;
    }
    if (outcome_) return false;
    boundary_ = now_ + quantum;
    passed_ = quantum;
    plan_.end = now_;
    plan_.part = Part::all;
    return true;
}

bool Fabric::plan(unsigned thread) {
    if (plan_.part == Part::border) {
        plan_.part = Part::interior;
        return true;
    }
    const unsigned side = plan_.side ^ 1;
    for (now_ = plan_.end;;) {
        if (peers_) {
            // Processes take the same windows, and agree where a quantum ends.
            if (now_ == boundary_ || cut_off_) return false;
            plan_ = {now_, std::min(now_ + settings_.window, boundary_), Part::border, side, -1};
            return true;
        }
        if ((now_ == boundary_ || failed()) && !settle()) return false;
        const auto [event, who, second] = busiest();
        const uint64_t first = std::max(event, now_);
        if (first >= boundary_) {
            now_ = boundary_;
            continue;
        }
        const uint64_t end = std::min(first + settings_.window, boundary_);
        if (second < end) {
            plan_ = {first, end, Part::all, side, -1};
            return true;
        }
        const uint64_t limit = std::min(second, boundary_);
        if (who != thread) {
            plan_ = {first, limit, Part::all, side, static_cast<int>(who)};
            return true;
        }
        // The others need not even know.
        deliver(thread, plan_.side);
        now_ = run_alone(thread, first, limit);
        partitions_[thread]->next = partitions_[thread]->next_event();
    }
}

Fabric::Busiest Fabric::busiest() const {
    if (flat_) return {now_, 0, NEVER};
    unsigned busy = 0;
    for (auto& partition : partitions_) busy += partition->next <= now_;
    if (busy > 1) return {now_, 0, now_};
    Busiest found{NEVER, 0, NEVER};
    for (unsigned thread = 0; thread < partitions_.size(); ++thread) {
        const uint64_t event = next_event(thread);
        if (event < found.first) {
            found = {event, thread, found.first};
        } else {
            found.second = std::min(found.second, event);
        }
    }
    return found;
}

void Fabric::take_turn(unsigned thread) {
    Partition& mine = *partitions_[thread];
    if (plan_.part != Part::interior) {
        deliver(thread, plan_.side ^ 1);
        for (Outbox& box : mine.outboxes) box.side = plan_.side;
    }
    const bool exchange = plan_.part == Part::interior && thread == 0;
    if (exchange && peers_->send()) cut_off_ = true;
    if (plan_.alone < 0)
        mine.run(plan_.start, plan_.end, plan_.part);
    else if (plan_.alone == static_cast<int>(thread))
        plan_.end = run_alone(thread, plan_.start, plan_.end);
    if (exchange && !cut_off_ && peers_->receive()) cut_off_ = true;
    mine.next = mine.next_event();
}

uint64_t Fabric::run_alone(unsigned thread, uint64_t start, uint64_t limit) {
    Partition& mine = *partitions_[thread];
    for (;;) {
        const uint64_t end = std::min(start + settings_.window, limit);
        if (flat_)
            run_flat(start, end);
        else
            mine.run(start, end, Part::all);
        for (Outbox& box : mine.outboxes) limit = std::min(limit, box.mail().earliest());
        if (mine.broken) return end;
        start = flat_ ? end : mine.next_event();
        if (start >= limit) return limit;
    }
}

void Fabric::run_flat(uint64_t start, uint64_t end) {
    NoProfile none;
    try {
        for (uint64_t t = start; t < end; ++t) {
            for (auto& node : nodes_) node->exchange(t, none);
            flat_->edge(t);
            for (auto& node : nodes_) {
                node->refresh();
                ++node->stepped;
                if (log.keeps(EventKind::activity)) node->observe(t + 1);
            }
        }
    } catch (const RuleBroken& problem) {
        partitions_.front()->fail(problem);
    }
}

bool Fabric::failed() const {
    return std::any_of(partitions_.begin(), partitions_.end(),
                       [](auto& each) { return each->broken.has_value(); });
}

uint64_t Fabric::next_event(unsigned thread) const {
    uint64_t event = std::min(partitions_[thread]->next,
                              foreign_[thread].sides[plan_.side].earliest());
    for (auto& sender : partitions_)
        event = std::min(event, sender->outboxes[thread].sides[plan_.side].earliest());
    return event;
}

uint64_t Fabric::next_event() const {
    uint64_t event = NEVER;
    for (unsigned thread = 0; thread < partitions_.size(); ++thread)
        event = std::min(event, next_event(thread));
    return event;
}

// Exchange of words.

void Fabric::deliver(unsigned thread, unsigned side) {
    const auto empty = [this](Mail& mail) {
        Mail::read(mail.data(), mail.data() + mail.size(),
                   [this](uint32_t link, uint64_t arrival, const uint32_t* word, unsigned words) {
                       copy_words(link_of_[link]->arrive(arrival), word, words);
                   });
        mail.clear();
    };
    for (auto& sender : partitions_) empty(sender->outboxes[thread].sides[side]);
    empty(foreign_[thread].sides[side]);
}

const Mail& Fabric::mail(unsigned rank) {
    Mail& leaving = leaving_.at(rank);
    leaving.clear();
    for (auto& partition : partitions_) {
        leaving.append(partition->abroad[rank].mail());
        partition->abroad[rank].mail().clear();
    }
    return leaving;
}

void Fabric::give(const uint64_t* records, size_t size) {
    Mail::read(records, records + size,
               [this](uint32_t link, uint64_t arrival, const uint32_t* word, unsigned words) {
                   const unsigned thread = thread_of_[link_of_.at(link)->spec.target];
                   Mail& mail = foreign_[thread].sides[plan_.side];
                   copy_words(mail.put(link, arrival, words), word, words);
               });
}

}  // namespace supernode
