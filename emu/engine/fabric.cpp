#include "fabric.hpp"

#include <algorithm>
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

Fabric::Fabric(const Settings& settings)
    : log{settings.event_log},
      settings_{settings},
      next_(settings.nodes, NEVER),
      foreign_(settings.threads),
      leaving_(settings.ranks) {
    for (unsigned thread = 0; thread < settings.threads; ++thread) {
        partitions_.push_back(std::make_unique<Partition>(settings, next_, group_of_));
        partitions_.back()->outboxes = std::vector<Outbox>(settings.threads);
        partitions_.back()->abroad = std::vector<Outbox>(settings.ranks);
    }
}

Model& Fabric::add_model(const std::string& name) {
    models_.push_back(create(name));
    return *models_.back();
}

Group& Fabric::group(const std::string& name, unsigned thread) {
    // A group is run by one thread, and its nodes stand side by side.
    const bool fits = !groups_.empty() && groups_.back()->model_name == name &&
                      groups_.back()->size() < groups_.back()->lanes() &&
                      groups_.back().get() == group_of_.back() && thread_of_.back() == thread;
    if (!fits)
        groups_.push_back(
            std::make_unique<Group>(name, settings_.flat ? nullptr : &add_model(name)));
    return *groups_.back();
}

void Fabric::add_node(const NodeSpec& spec) {
    const unsigned number = node_of_.size();
    names_.push_back(spec.name);
    if (spec.rank != settings_.rank) {
        node_of_.push_back(nullptr);
        group_of_.push_back(nullptr);
        rank_of_.push_back(spec.rank);
        thread_of_.push_back(0);
        return;
    }
    Group& home = group(spec.models[0], spec.thread);
    std::vector<Tile> tiles(spec.tiles);
    for (unsigned index = 0; index < spec.tiles; ++index) {
        Tile& tile = tiles[index];
        if (settings_.flat) {
            if (!flat_) flat_ = create(spec.models[index]);
            tile.pins = &flat_->views.at(flat_views_++);
            continue;
        }
        const auto known = std::find(tile_kinds_.begin(), tile_kinds_.end(), spec.models[index]);
        tile.kind = known - tile_kinds_.begin();
        if (known == tile_kinds_.end()) tile_kinds_.push_back(spec.models[index]);
        tile.model = index ? &add_model(spec.models[index]) : home.model;
        tile.pins = &tile.model->views[index ? 0 : home.size()];
    }
    Partition& partition = *partitions_.at(spec.thread);
    nodes_.push_back(std::make_unique<Node>(number, spec, std::move(tiles), settings_,
                                            partition.log, next_.at(number), partition.progress));
    home.add(*nodes_.back());
    partition.add(number);
    node_of_.push_back(nodes_.back().get());
    group_of_.push_back(&home);
    rank_of_.push_back(spec.rank);
    thread_of_.push_back(spec.thread);
}

void Fabric::connect(const LinkSpec& spec) {
    const unsigned number = link_of_.size();
    link_of_.push_back(nullptr);
    Node *source = node_of_.at(spec.source), *target = node_of_.at(spec.target);
    if (!source && !target) return;
    if (source && target && !(source->front().link_format == target->front().link_format))
        throw std::runtime_error(source->name + " and " + target->name +
                                 " have link words of different layouts");
    LinkPort* from = source ? &source->links.at(spec.source_port) : nullptr;
    LinkPort* to = target ? &target->links.at(spec.target_port) : nullptr;
    if ((from && from->out) || (to && to->in))
        throw std::runtime_error("two links at port " + std::to_string(spec.source_port) +
                                 " of " + names_[spec.source] + " or port " +
                                 std::to_string(spec.target_port) + " of " +
                                 names_[spec.target]);
    Outbox* outbox = nullptr;
    if (!target)
        outbox = &partitions_[thread_of_[spec.source]]->abroad.at(rank_of_[spec.target]);
    else if (source && thread_of_[spec.source] != thread_of_[spec.target])
        outbox = &partitions_[thread_of_[spec.source]]->outboxes[thread_of_[spec.target]];
    links_.push_back(std::make_unique<Link>(spec, number,
                                            (target ? target : source)->front().link_format,
                                            next_[spec.target], outbox,
                                            target ? &target->due(spec.target_port) : nullptr));
    link_of_.back() = links_.back().get();
    if (from) from->out = links_.back().get();
    if (to) to->in = links_.back().get();
    if (!to) group_of_[spec.source]->border = true;
    if (!from) group_of_[spec.target]->border = true;
    if (to) *target->front().links[spec.target_port].up = 1;
}

Node& Fabric::node(unsigned number) const {
    Node* found = node_of_.at(number);
    if (!found)
        throw std::runtime_error(names_[number] + " is run by another process");
    return *found;
}

Link& Fabric::link(unsigned source, unsigned port) {
    Link* link = node(source).links.at(port).out;
    if (!link)
        throw std::runtime_error("no link at port " + std::to_string(port) + " of " +
                                 node(source).name);
    return *link;
}

void Fabric::watch(const FlowFormat& format) {
    flow_format_ = format;
    for (auto& link : links_) link->flow = std::make_unique<Flow>(flow_format_);
}

void Fabric::measure() {
    for (auto& partition : partitions_) partition->measure(tile_kinds_.size());
}

Link* Fabric::find_link(unsigned source, unsigned port) {
    for (auto& link : links_)
        if (link->spec.source == source && link->spec.source_port == port) return link.get();
    return nullptr;
}

Faults& Fabric::faults(Link& link) {
    if (!link.faults) link.faults = std::make_unique<Faults>();
    return *link.faults;
}

void Fabric::set_errors(unsigned source, unsigned port, const std::vector<Field>& fields,
                        double rate, uint64_t burst) {
    if (!node_of_.at(source)) return;
    const uint64_t seed = mix(settings_.seed ^ mix(uint64_t{source} << 32 | port));
    faults(link(source, port)).errors = BitErrors{fields, rate, burst, seed};
}

void Fabric::add_outage(unsigned source, unsigned port, uint64_t start, uint64_t end) {
    Link* failing = node_of_.at(source) ? &link(source, port) : find_link(source, port);
    if (!failing) return;
    faults(*failing).outages.push_back({start, end});
    Node* target = node_of_[failing->spec.target];
    if (!target) return;
    target->add_signal(start, failing->spec.target_port, false);
    if (end != NEVER) target->add_signal(end, failing->spec.target_port, true);
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
        node->observe(0);
        node->next = 0;
    }
    resume();
}

void Fabric::resume() {
    team_.emplace(
        partitions_.size(), [this](unsigned thread) { take_turn(thread); },
        [this](unsigned thread) { return plan(thread); });
}

unsigned Fabric::active() const {
    if (flat_) return nodes_.size();
    return std::count_if(next_.begin(), next_.end(),
                         [&](uint64_t event) { return event < now_ + settings_.quantum; });
}

}  // namespace supernode
