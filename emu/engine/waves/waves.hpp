// The waves of one tile: every signal of its model in an FST file, for some cycles.
//
// Time in the file is that of the machine: cycle t is from t to t + 1 ns. At t the clock rises, and
// registers and inputs have their values of cycle t; at t + 0.5 it falls. The edge that ends cycle t
// comes after both. A model with waves gets all evaluations that this takes, falling edges
// included, in other cycles too; its behaviour is that of the model without.
//
// A tile that is not evaluated changes nothing but its inputs, which are empty: this shows once,
// where the sleep begins, and then time stands still in the file until the next evaluation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <verilated_fst_c.h>

#include "bits.hpp"
#include "pins.hpp"

namespace supernode {

template <typename Verilated>
class Waves {
  public:
    explicit Waves(Verilated& model) : model_{model} {}

    // To be called after reset, once: cycles [from, end) go to a file. `pins` are the model's.
    void open(const TilePins& pins, const std::string& path, uint64_t from, uint64_t end) {
        pins_ = &pins;
        path_ = path;
        from_ = from;
        end_ = end;
        model_.trace(&file_, 99);
        file_.set_time_resolution("100ps");
    }

    // The clock edge that ends cycle `now`, whose inputs are there.
    void edge(uint64_t now) {
        if (now >= end_) [[unlikely]] finish(end_);
        model_.now = now;
        const bool shown = now >= from_ && now < end_;
        if (shown) {
            sleep(now);
            frame(10 * now);
        }
        model_.clk = 0;
        if (shown)
            frame(10 * now + 5);
        else
            model_.eval();
        model_.clk = 1;
        model_.eval();
        awake_ = now + 1;
    }

    // Closes the file, if there is one; cycles before `end` have passed.
    void finish(uint64_t end) {
        if (sleep(std::min(end, end_))) file_.dump(10 * std::min(end, end_));
        file_.close();
        from_ = end_ = NEVER;
    }

  private:
    void frame(uint64_t time) {
        if (!file_.isOpen()) file_.open(path_.c_str());
        model_.eval();
        file_.dump(time);
    }

    // The tile has not been evaluated since cycle `awake_`, and until `now`: show that. False if it
    // has, or if no such cycle is to be shown.
    bool sleep(uint64_t now) {
        const uint64_t since = std::max(awake_, from_);
        if (since >= now) return false;
        const uint64_t present = model_.now;
        std::vector<std::vector<uint32_t>> words;
        for (const LinkPins& link : pins_->links) {
            words.emplace_back(link.rx, link.rx + pins_->link_format.words);
            std::fill_n(link.rx, pins_->link_format.words, 0);
        }
        std::vector<uint8_t*> valids;
        for (const ReadPins& port : pins_->reads) valids.push_back(port.response_valid);
        for (const Stream& stream : pins_->streams)
            if (!stream.out) valids.push_back(stream.pins.valid);
        if (pins_->host.valid) valids.push_back(pins_->host.valid);
        std::vector<uint8_t> levels;
        for (uint8_t* valid : valids) levels.push_back(std::exchange(*valid, 0));
        model_.now = since;
        frame(10 * since);
        model_.now = present;
        for (size_t index = 0; index < valids.size(); ++index) *valids[index] = levels[index];
        for (size_t port = 0; port < words.size(); ++port)
            std::copy(words[port].begin(), words[port].end(), pins_->links[port].rx);
        return true;
    }

    Verilated& model_;
    const TilePins* pins_ = nullptr;
    VerilatedFstC file_;
    std::string path_;
    uint64_t from_ = NEVER, end_ = NEVER;  // of what is shown
    uint64_t awake_ = 0;                   // the cycle after that of the last edge
};

}  // namespace supernode
