// Where the engine touches a Verilated model: pointers to its ports, grouped as in the manifest.
//
// Generated glue (tile.cpp.j2) fills these structures, so that the engine itself is compiled once
// for every tile and every parameter set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace supernode {

// What a tile's 48-bit `wake` says when it has no deadline.
inline constexpr uint64_t no_wake = (uint64_t{1} << 48) - 1;

// Bits of a packed word.
struct Field {
    unsigned first = 0;
    unsigned width = 0;

    bool operator==(const Field&) const = default;
};

// Bits of a word and the first of the bits, of 128, that they go to.
struct Move {
    Field from;
    unsigned to = 0;

    bool operator==(const Move&) const = default;
};

// What the engine knows of a link word. The payload sits at bit 0; the control bits start right
// after it and, the CRC apart, fit 64 bits. `flit`, `credit` and `ack` are the control bits that
// mean something only while their flag is set; the payload does while `valid` or `start` is. The
// payload of a `head` is a packet's header, and `header` says what the event log keeps of it.
struct LinkFormat {
    unsigned words = 0;
    unsigned payload_words = 0;
    uint64_t strobe = 0, start = 0;
    uint64_t valid = 0, head = 0, flit = 0;
    uint64_t has_credit = 0, credit = 0;
    uint64_t has_ack = 0, ack = 0;
    uint64_t control = 0;
    std::vector<Move> header;

    bool operator==(const LinkFormat&) const = default;
    uint64_t control_bits(const uint32_t* word) const {
        return word[payload_words] | uint64_t{word[payload_words + 1]} << 32;
    }
};

struct LinkPins {
    uint32_t* rx = nullptr;  // null where the link stays inside the model
    const uint32_t* tx = nullptr;
    uint8_t* up = nullptr;
    uint32_t* fault = nullptr;  // bits of tx to flip, where the link stays inside the model
};

struct ReadPins {
    const uint8_t* valid = nullptr;
    uint8_t* ready = nullptr;
    const uint64_t* request = nullptr;
    uint8_t* response_valid = nullptr;
    uint32_t* response = nullptr;
    Field index, tag;  // of the request; a response is the data, then the tag
};

struct WritePins {
    const uint8_t* valid = nullptr;
    uint8_t* ready = nullptr;
    const uint32_t* request = nullptr;
    Field mask, index;  // data comes first
};

struct HostPins {
    uint8_t* valid = nullptr;
    uint8_t* write = nullptr;
    uint16_t* address = nullptr;
    uint64_t* data = nullptr;
    const uint8_t* read_valid = nullptr;
    const uint64_t* read_data = nullptr;
    const uint32_t* completions = nullptr;
};

struct StreamPins {
    uint64_t* payload = nullptr;
    uint8_t* valid = nullptr;
    uint8_t* ready = nullptr;
};

// A stream between the tiles of a node; tiles name theirs alike.
struct Stream {
    std::string name;
    bool out = false;  // this tile offers
    StreamPins pins;
};

// A word of what the tile is doing, of up to 8 bytes.
struct ActivityPin {
    const void* at = nullptr;
    unsigned bytes = 0;
};

// A port that is set once: configuration.
struct ValuePin {
    std::string role;
    void* at = nullptr;
    unsigned bytes = 0;
};

// A bit per port of a tile, in `bytes` bytes that are `apart`; none where `at` is null.
template <typename Byte>
struct PortBits {
    Byte* at = nullptr;
    unsigned bytes = 0;
    size_t apart = 0;

    uint64_t get() const {
        uint64_t bits = 0;
        for (unsigned byte = 0; byte < bytes; ++byte)
            bits |= uint64_t{at[byte * apart]} << 8 * byte;
        return bits;
    }
    void set(uint64_t bits) const {
        for (unsigned byte = 0; byte < bytes; ++byte) at[byte * apart] = bits >> 8 * byte;
    }
};

struct TilePins {
    LinkFormat link_format;
    std::vector<LinkPins> links;
    std::vector<ReadPins> reads;
    std::vector<WritePins> writes;
    HostPins host;  // all null where a tile has no host port
    std::vector<Stream> streams;
    const uint8_t* idle = nullptr;
    const uint64_t* wake = nullptr;
    std::vector<ActivityPin> activity;
    std::vector<ValuePin> values;
    // Where a model says at once which outputs hold something: what `look` finds.
    PortBits<const uint8_t> offers;
    // Where it wants to be told which links have brought a word.
    PortBits<uint8_t> arrivals;

    // A bit per output: links with a word, then read ports and write ports with a request, the
    // host's read data, and the streams that this tile offers.
    uint64_t look() const {
        uint64_t bits = 0;
        unsigned at = 0;
        for (const LinkPins& link : links)
            bits |= uint64_t{(link_format.control_bits(link.tx) & link_format.strobe) != 0} << at++;
        for (const ReadPins& port : reads) bits |= uint64_t{*port.valid != 0} << at++;
        for (const WritePins& port : writes) bits |= uint64_t{*port.valid != 0} << at++;
        if (host.valid) bits |= uint64_t{*host.read_valid != 0} << at++;
        for (const Stream& stream : streams)
            if (stream.out) bits |= uint64_t{*stream.pins.valid != 0} << at++;
        return bits;
    }
};

// A Verilated model: one tile, or a flat fabric with one view per tile.
class Model {
  public:
    virtual ~Model() = default;
    // One rising clock edge at cycle `now`, with whatever the input pins hold.
    virtual void edge(uint64_t now) = 0;
    virtual void reset(bool level) = 0;
    // Activity pins are read from now on: a model may leave them alone before.
    virtual void observe() {}
    // The whole state, pins included, appended to `to`; and taken back from exactly these bytes,
    // by a model whose `layout` is the same. Models with waves have none to save.
    virtual void save(std::vector<uint8_t>& /*to*/) { stateless(); }
    virtual void restore(const uint8_t* /*from*/, size_t /*bytes*/) { stateless(); }
    // Names the arrangement of the state's bytes.
    virtual const char* layout() const { stateless(); }
    // Of a model that is built with waves (see waves.hpp): cycles [from, end) go to a file. To be
    // called after reset.
    virtual void show(const std::string& /*path*/, uint64_t /*from*/, uint64_t /*end*/) {
        throw std::runtime_error("a model that is built without waves has none to show");
    }
    // Closes the file; cycles before `end` have passed.
    virtual void finish(uint64_t /*end*/) {}
    std::vector<TilePins> views;

  private:
    [[noreturn]] static void stateless() {
        throw std::runtime_error("a model that is built with waves cannot be saved");
    }
};

struct Kind {
    std::string name;
    std::unique_ptr<Model> (*create)();
};

// Kinds linked into this engine. Glue registers itself while the library loads.
std::vector<Kind>& kinds();

struct Registration {
    Registration(const char* name, std::unique_ptr<Model> (*create)()) {
        kinds().push_back({name, create});
    }
};

}  // namespace supernode
