// Drives a lane-parallel model and as many Verilated ones as it has lanes with the same random
// inputs, different in every lane, and compares what they answer in every cycle.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bits.hpp"
#include "pins.hpp"

namespace {

using namespace supernode;

std::unique_ptr<Model> create(const std::string& name) {
    for (const Kind& kind : kinds())
        if (kind.name == name) return kind.create();
    throw std::runtime_error("no model called " + name);
}

class Random {
  public:
    explicit Random(uint64_t seed) : state_{mix(seed + 1)} {}
    uint64_t bits() { return mix(state_ += 0x9e3779b97f4a7c15ull); }
    bool one_in(unsigned n) { return bits() % n == 0; }
    // Few, half or most bits set, by turns: so that flags are not always mixed.
    uint64_t word() {
        const uint64_t a = bits(), b = bits();
        switch (bits() % 4) {
            case 0: return a & b & bits();
            case 1: return a | b;
            case 2: return a & 0xff;
            default: return a;
        }
    }
    void fill(void* at, size_t bytes) {
        for (size_t done = 0; done < bytes; done += 8) {
            const uint64_t value = word();
            std::memcpy(static_cast<uint8_t*>(at) + done, &value, std::min<size_t>(8, bytes - done));
        }
    }

  private:
    uint64_t state_;
};

struct Mismatch : std::runtime_error {
    using runtime_error::runtime_error;
};

// One lane: a tile alone, and its lane of the model of many.
class Lane {
  public:
    // Without a model of its own the lane is only driven.
    Lane(std::unique_ptr<Model> model, TilePins& pins, unsigned number, uint64_t seed,
         unsigned activity)
        : model{std::move(model)}, alone_{this->model ? this->model->views[0] : pins}, lane_{pins},
          number_{number}, activity_{activity}, random_{seed * 1000003 + number} {
        const LinkFormat& format = alone_.link_format;
        word_.resize(format.words);
        echo_.resize(alone_.links.size(), std::vector<uint32_t>(format.words));
        for (unsigned at = 0; at < alone_.values.size(); ++at) {
            const ValuePin &one = alone_.values[at], &other = lane_.values[at];
            std::vector<uint8_t> value(one.bytes);
            random_.fill(value.data(), one.bytes);
            // Bits beyond the width of a port stay 0 in both.
            if (one.role == "config.memory_bytes" || one.role == "memory_bytes") {
                const uint64_t size = 1 << 20;
                std::memcpy(value.data(), &size, std::min<size_t>(8, one.bytes));
            } else if (one.role != "config.node" && one.role != "node") {
                if (one.bytes > 8) value.back() = value[one.bytes - 2] = 0;
            }
            if (one.bytes > 8) std::memset(value.data() + one.bytes - 4, 0, 4);
            std::memcpy(one.at, value.data(), one.bytes);
            std::memcpy(other.at, value.data(), one.bytes);
        }
        for (unsigned port = 0; port < alone_.links.size(); ++port)
            *alone_.links[port].up = *lane_.links[port].up = 1;
    }

    void stimulate(uint64_t t) {
        const LinkFormat& format = alone_.link_format;
        const bool busy = activity_ && (t / 64 % 3 || number_ % 5 == 0);
        uint64_t arrived = 0;
        for (unsigned port = 0; port < alone_.links.size(); ++port) {
            std::fill(word_.begin(), word_.end(), 0);
            const unsigned source = random_.bits() % echo_.size();
            if (busy && random_.one_in(activity_)) {
                random_.fill(word_.data(), 4 * format.words);
                set_control(word_, (format.control_bits(word_.data()) | format.strobe) & format.control);
                for (unsigned at = format.payload_words + 2; at < format.words; ++at) word_[at] = 0;
            } else if (busy && !random_.one_in(4)) {
                word_ = echo_[source];
            }
            std::memcpy(alone_.links[port].rx, word_.data(), 4 * format.words);
            std::memcpy(lane_.links[port].rx, word_.data(), 4 * format.words);
            const bool full = format.control_bits(word_.data()) & format.strobe;
            arrived |= uint64_t{full} << port;
            if (activity_ && random_.one_in(5000))
                *alone_.links[port].up = *lane_.links[port].up = random_.one_in(2);
        }
        lane_.arrivals.set(arrived);
        for (unsigned port = 0; port < alone_.links.size(); ++port) {
            const uint32_t* tx = alone_.links[port].tx;
            if (format.control_bits(tx) & format.strobe)
                echo_[port].assign(tx, tx + format.words);
            else
                std::fill(echo_[port].begin(), echo_[port].end(), 0);
        }
        for (unsigned port = 0; port < alone_.reads.size(); ++port) {
            const ReadPins &one = alone_.reads[port], &other = lane_.reads[port];
            *one.ready = *other.ready = !random_.one_in(5);
            *one.response_valid = *other.response_valid = busy && random_.one_in(3);
            if (*one.response_valid) {
                const unsigned bytes = 4 * format_payload() + 4;
                random_.fill(one.response, bytes);
                one.response[format_payload()] &= low_bits(one.tag.width);
                std::memcpy(other.response, one.response, bytes);
            }
        }
        for (unsigned port = 0; port < alone_.writes.size(); ++port)
            *alone_.writes[port].ready = *lane_.writes[port].ready = !random_.one_in(4);
        if (alone_.host.valid) {
            const HostPins &one = alone_.host, &other = lane_.host;
            *one.valid = *other.valid = busy && random_.one_in(3);
            if (*one.valid) {
                *one.write = *other.write = !random_.one_in(4);
                const unsigned range = random_.one_in(2) ? 64 : 1024;
                *one.address = *other.address = random_.bits() % range * 8 & address_mask();
                *one.data = *other.data = random_.word();
            }
        }
        for (unsigned index = 0; index < alone_.streams.size(); ++index) {
            const Stream &one = alone_.streams[index], &other = lane_.streams[index];
            if (one.out) {
                *one.pins.ready = *other.pins.ready = random_.one_in(2);
            } else {
                *one.pins.valid = *other.pins.valid = busy && random_.one_in(9);
                if (*one.pins.valid) *one.pins.payload = *other.pins.payload = random_.bits() & 0xfff;
            }
        }
    }

    void compare(uint64_t t) const {
        const LinkFormat& format = alone_.link_format;
        expect(lane_.offers.get() == alone_.look(), t, "what is on offer", 0);
        for (unsigned port = 0; port < alone_.links.size(); ++port) {
            const uint32_t *one = alone_.links[port].tx, *other = lane_.links[port].tx;
            const bool full = format.control_bits(one) & format.strobe;
            expect(full == bool(format.control_bits(other) & format.strobe), t, "strobe of link", port);
            if (full)
                equal(one, other, 32 * format.words, t, "word of link", port);
        }
        for (unsigned port = 0; port < alone_.reads.size(); ++port) {
            const ReadPins &one = alone_.reads[port], &other = lane_.reads[port];
            expect(*one.valid == *other.valid, t, "valid of read port", port);
            if (*one.valid) expect(*one.request == *other.request, t, "request of read port", port);
        }
        for (unsigned port = 0; port < alone_.writes.size(); ++port) {
            const WritePins &one = alone_.writes[port], &other = lane_.writes[port];
            expect(*one.valid == *other.valid, t, "valid of write port", port);
            const unsigned bits = one.index.first + one.index.width;
            if (*one.valid)
                equal(one.request, other.request, bits, t, "request of write port", port);
        }
        if (alone_.host.valid) {
            const HostPins &one = alone_.host, &other = lane_.host;
            expect(*one.read_valid == *other.read_valid, t, "valid of the host's result", 0);
            if (*one.read_valid) expect(*one.read_data == *other.read_data, t, "the host's result", 0);
            expect(*one.completions == *other.completions, t, "completions", 0);
        }
        for (unsigned index = 0; index < alone_.streams.size(); ++index) {
            const Stream &one = alone_.streams[index], &other = lane_.streams[index];
            if (!one.out) {
                expect(*one.pins.ready == *other.pins.ready, t, "ready of stream", index);
                continue;
            }
            expect(*one.pins.valid == *other.pins.valid, t, "valid of stream", index);
            if (*one.pins.valid)
                expect(*one.pins.payload == *other.pins.payload, t, "payload of stream", index);
        }
        for (unsigned word = 0; word < alone_.activity.size(); ++word)
            expect(!std::memcmp(alone_.activity[word].at, lane_.activity[word].at,
                                alone_.activity[word].bytes), t, "word of activity", word);
        expect(*alone_.idle == *lane_.idle, t, "idle", 0);
        if (*alone_.idle) expect(*alone_.wake == *lane_.wake, t, "wake", 0);
    }

    std::unique_ptr<Model> model;

  private:
    unsigned format_payload() const {
        // Read ports carry flits: as many words as a link's payload, or what the tag says.
        return alone_.link_format.payload_words ? alone_.link_format.payload_words : 8;
    }
    static unsigned address_mask() { return 0x1fff; }
    void set_control(std::vector<uint32_t>& word, uint64_t control) const {
        word[alone_.link_format.payload_words] = uint32_t(control);
        word[alone_.link_format.payload_words + 1] = uint32_t(control >> 32);
    }
    void equal(const uint32_t* one, const uint32_t* other, unsigned bits, uint64_t t,
               const char* what, unsigned port) const {
        for (unsigned bit = 0; bit < bits; ++bit)
            if ((one[bit / 32] ^ other[bit / 32]) >> bit % 32 & 1)
                expect(false, t, (std::string("bit ") + std::to_string(bit) + " of the " + what).c_str(),
                       port);
    }
    void expect(bool holds, uint64_t t, const char* what, unsigned port) const {
        if (holds) return;
        throw Mismatch("lane " + std::to_string(number_) + " differs in cycle " + std::to_string(t) +
                       ": " + what + " " + std::to_string(port));
    }

    TilePins &alone_, &lane_;
    unsigned number_, activity_;
    Random random_;
    std::vector<uint32_t> word_;
    std::vector<std::vector<uint32_t>> echo_;
};

std::string message;

uint64_t processor_ns() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return uint64_t(now.tv_sec) * 1000000000 + now.tv_nsec;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Empty if they agree; what differs first otherwise. `spent` takes nanoseconds per edge: of one
// tile alone, and of all lanes.
const char* compare_models(const char* alone, const char* lanes, uint64_t cycles, uint64_t seed,
                           uint32_t activity, double* spent) {
    try {
        const std::unique_ptr<Model> model = create(lanes);
        std::vector<std::unique_ptr<Lane>> all;
        for (unsigned lane = 0; lane < model->views.size(); ++lane)
            all.push_back(std::make_unique<Lane>(create(alone), model->views[lane], lane, seed,
                                                 activity));
        model->observe();
        model->reset(true);
        for (auto& lane : all) lane->model->reset(true);
        for (unsigned cycle = 0; cycle < 4; ++cycle) {
            model->edge(0);
            for (auto& lane : all) lane->model->edge(0);
        }
        model->reset(false);
        for (auto& lane : all) lane->model->reset(false);
        std::vector<uint64_t> one, other;
        for (uint64_t t = 0; t < cycles; ++t) {
            for (auto& lane : all) {
                lane->compare(t);
                lane->stimulate(t);
            }
            const uint64_t start = processor_ns();
            for (auto& lane : all) lane->model->edge(t);
            const uint64_t middle = processor_ns();
            model->edge(t);
            one.push_back(middle - start);
            other.push_back(processor_ns() - middle);
        }
        std::sort(one.begin(), one.end());
        std::sort(other.begin(), other.end());
        spent[0] = double(one[cycles / 10]) / all.size();
        spent[1] = double(other[cycles / 10]);
        message.clear();
    } catch (const std::exception& problem) {
        message = problem.what();
    }
    return message.c_str();
}

// Nanoseconds per edge of all lanes, driven as above: of the faster tenth, since what else the
// processor does only makes an edge slower.
double measure_model(const char* lanes, uint64_t cycles, uint64_t seed, uint32_t activity) {
    const std::unique_ptr<Model> model = create(lanes);
    std::vector<std::unique_ptr<Lane>> all;
    for (unsigned lane = 0; lane < model->views.size(); ++lane)
        all.push_back(std::make_unique<Lane>(nullptr, model->views[lane], lane, seed, activity));
    model->reset(true);
    for (unsigned cycle = 0; cycle < 4; ++cycle) model->edge(0);
    model->reset(false);
    std::vector<uint64_t> spent;
    for (uint64_t t = 0; t < cycles; ++t) {
        for (auto& lane : all) lane->stimulate(t);
        const uint64_t start = processor_ns();
        model->edge(t);
        spent.push_back(processor_ns() - start);
    }
    std::sort(spent.begin(), spent.end());
    return double(spent[spent.size() / 10]);
}

}
#pragma GCC visibility pop
