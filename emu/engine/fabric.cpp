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

Model& Fabric::add_model(const std::string& name) {
    models_.push_back(create(name));
    return *models_.back();
}

Group& Fabric::group(const std::string& name) {
    if (groups_.empty() || groups_.back()->model_name != name ||
        groups_.back()->size() == groups_.back()->lanes())
        groups_.push_back(
            std::make_unique<Group>(name, settings_.flat ? nullptr : &add_model(name)));
    return *groups_.back();
}

void Fabric::add_node(const NodeSpec& spec) {
    const unsigned number = nodes_.size();
    Group& home = group(spec.models[0]);
    std::vector<Tile> tiles(spec.tiles);
    for (unsigned index = 0; index < spec.tiles; ++index) {
        Tile& tile = tiles[index];
        if (settings_.flat) {
            if (!flat_) flat_ = create(spec.models[index]);
            tile.pins = &flat_->views.at(flat_views_++);
            continue;
        }
        tile.model = index ? &add_model(spec.models[index]) : home.model;
        tile.pins = &tile.model->views[index ? 0 : home.size()];
    }
    nodes_.push_back(std::make_unique<Node>(number, spec, std::move(tiles), settings_, log,
                                            next_.at(number), progress_));
    home.add(*nodes_.back());
    group_of_.push_back(&home);
}

void Fabric::connect(const LinkSpec& spec) {
    Node &source = node(spec.source), &target = node(spec.target);
    if (!(source.front().link_format == target.front().link_format))
        throw std::runtime_error(source.name + " and " + target.name +
                                 " have link words of different layouts");
    LinkPort &from = source.links.at(spec.source_port), &to = target.links.at(spec.target_port);
    if (from.out || to.in)
        throw std::runtime_error("two links at port " + std::to_string(spec.source_port) + " of " +
                                 source.name + " or port " + std::to_string(spec.target_port) +
                                 " of " + target.name);
    links_.push_back(std::make_unique<Link>(spec, target.front().link_format, target.next));
    from.out = to.in = links_.back().get();
    *target.front().links[spec.target_port].up = 1;
}

Link& Fabric::link(unsigned source, unsigned port) {
    Link* link = node(source).links.at(port).out;
    if (!link)
        throw std::runtime_error("no link at port " + std::to_string(port) + " of " +
                                 node(source).name);
    return *link;
}

Faults& Fabric::faults(Link& link) {
    if (!link.faults) link.faults = std::make_unique<Faults>();
    return *link.faults;
}

void Fabric::set_errors(unsigned source, unsigned port, const std::vector<Field>& fields,
                        double rate, uint64_t burst) {
    const uint64_t seed = mix(settings_.seed ^ mix(uint64_t{source} << 32 | port));
    faults(link(source, port)).errors = BitErrors{fields, rate, burst, seed};
}

void Fabric::add_outage(unsigned source, unsigned port, uint64_t start, uint64_t end) {
    Link& failing = link(source, port);
    faults(failing).outages.push_back({start, end});
    Node& target = node(failing.spec.target);
    target.add_signal(start, failing.spec.target_port, false);
    if (end != NEVER) target.add_signal(end, failing.spec.target_port, true);
}

void Fabric::set_value(unsigned number, unsigned tile, const std::string& role,
                       const uint8_t* data, size_t bytes) {
    for (const ValuePin& pin : node(number).tiles.at(tile).pins->values) {
        if (pin.role != role) continue;
        std::memset(pin.at, 0, pin.bytes);
        std::memcpy(pin.at, data, std::min<size_t>(bytes, pin.bytes));
        return;
    }
    throw std::runtime_error(node(number).name + " has no input " + role);
}

void Fabric::start() {
    for (auto& model : models_) reset(*model);
    if (flat_) reset(*flat_);
    for (auto& node : nodes_) {
        node->refresh();
        node->next = 0;
    }
}

bool Fabric::reaches(const Condition& condition) const {
    // Totals are compared modulo 2^32.
    return static_cast<int32_t>(nodes_.at(condition.node)->completions() - condition.total) >= 0;
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
        if (progress_ != last_progress_) {
            last_progress_ = progress_;
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
        for (size_t number = 0; number < nodes_.size(); ++number) {
            if (next_[number] >= end) continue;
            Group& group = *group_of_[number];
            group.run(start, end);
            number = group.last();
        }
        return;
    }
    for (uint64_t t = start; t < end; ++t) {
        for (auto& node : nodes_) node->exchange(t);
        flat_->edge(t);
        for (auto& node : nodes_) {
            node->refresh();
            ++node->stepped;
        }
    }
}

uint64_t Fabric::next_event() const {
    return *std::min_element(next_.begin(), next_.end());
}

}  // namespace supernode
