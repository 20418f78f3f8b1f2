#include "fabric.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace supernode {

std::vector<Kind>& kinds() {
    static std::vector<Kind> known;
    return known;
}

namespace {

std::unique_ptr<Model> create(const std::string& name) {
    for (const Kind& kind : kinds())
        if (kind.name == name) return kind.create();
    throw std::runtime_error("this engine has no tile called " + name);
}

constexpr unsigned reset_cycles = 4;

void reset(Model& model) {
    model.reset(true);
    for (unsigned cycle = 0; cycle < reset_cycles; ++cycle) model.edge(0);
    model.reset(false);
}

}  // namespace

void Fabric::add_card(uint8_t* memory) {
    const unsigned rank = cards_.size();
    if (settings_.flat) {
        if (!flat_) flat_ = create("flat");
        if (2 * rank + 1 >= flat_->views.size())
            throw std::runtime_error("the flat design has fewer cards than the topology");
        cards_.push_back(std::make_unique<Card>(rank, memory, settings_, log,
                                                flat_->views[2 * rank], flat_->views[2 * rank + 1],
                                                nullptr, nullptr, next_.at(rank)));
        return;
    }
    std::unique_ptr<Model> network = create("network"), compute = create("compute");
    cards_.push_back(std::make_unique<Card>(rank, memory, settings_, log, network->views[0],
                                            compute->views[0], network.get(), compute.get(),
                                            next_.at(rank)));
    models_.push_back(std::move(network));
    models_.push_back(std::move(compute));
}

void Fabric::connect(unsigned source, unsigned source_port, unsigned target,
                     unsigned target_port) {
    LinkPort& port = card(source).links.at(source_port);
    port.peer = &card(target);
    port.peer_port = target_port;
    if (target_port >= card(target).links.size())
        throw std::runtime_error("no link port " + std::to_string(target_port));
}

void Fabric::set_value(unsigned rank, unsigned tile, const std::string& role, const uint8_t* data,
                       size_t bytes) {
    for (const ValuePin& pin : card(rank).tiles[tile].pins->values) {
        if (pin.role != role) continue;
        std::memset(pin.at, 0, pin.bytes);
        std::memcpy(pin.at, data, std::min<size_t>(bytes, pin.bytes));
        return;
    }
    throw std::runtime_error("no input " + role);
}

void Fabric::start() {
    for (auto& model : models_) reset(*model);
    if (flat_) reset(*flat_);
    for (auto& card : cards_) {
        card->refresh();
        card->next = 0;
    }
}

bool Fabric::reaches(const Condition& condition) const {
    // Totals are compared modulo 2^32.
    return static_cast<int32_t>(cards_.at(condition.rank)->completions() - condition.total) >= 0;
}

Outcome Fabric::run(const std::vector<Condition>& conditions, uint64_t deadline, double seconds) {
    using clock = std::chrono::steady_clock;
    const auto end = clock::now() + std::chrono::duration<double>(seconds);
    const uint64_t quantum = settings_.quantum;
    const auto boundary_after = [&](uint64_t cycle) {
        return (cycle + quantum - 1) / quantum * quantum;
    };
    for (;;) {
        if (!conditions.empty() && std::all_of(conditions.begin(), conditions.end(),
                                               [&](auto& each) { return reaches(each); }))
            return Outcome::met;
        if (now_ >= deadline) return Outcome::deadline;
        const uint64_t event = flat_ ? now_ : next_event();
        if (event >= now_ + quantum) {
            // Nothing happens at the next boundaries: go on at the last one before the event.
            if (event == NEVER && !conditions.empty()) return Outcome::dead;
            now_ = std::min(event / quantum * quantum, boundary_after(deadline));
            continue;
        }
        run_quantum();
        if (progress() != last_progress_) {
            last_progress_ = progress();
            stagnant_ = 0;
        } else if ((stagnant_ += quantum) >= settings_.patience && !conditions.empty()) {
            stagnant_ = 0;
            return Outcome::stalled;
        }
        if (clock::now() >= end) return Outcome::slice;
    }
}

void Fabric::run_quantum() {
    const uint64_t boundary = now_ + settings_.quantum;
    while (now_ < boundary) {
        const uint64_t end = std::min<uint64_t>(now_ + settings_.window, boundary);
        run_window(now_, end);
        now_ = end;
    }
}

void Fabric::run_window(uint64_t start, uint64_t end) {
    if (!flat_) {
        for (size_t rank = 0; rank < cards_.size(); ++rank)
            if (next_[rank] < end) cards_[rank]->run(start, end);
        return;
    }
    for (uint64_t t = start; t < end; ++t) {
        for (auto& card : cards_) card->exchange(t);
        flat_->edge(t);
        for (auto& card : cards_) {
            card->refresh();
            ++card->stepped;
        }
    }
}

uint64_t Fabric::next_event() const {
    return *std::min_element(next_.begin(), next_.end());
}

uint64_t Fabric::progress() const {
    uint64_t total = 0;
    for (const auto& card : cards_) total += card->progress;
    return total;
}

}  // namespace supernode
