// State as bytes, both ways from one description: a class with state has one member
// `template <typename A> void archive(A& a)` that names its variables, and a Saver appends them to a
// vector where a Loader takes them back. So the two cannot drift apart.
//
// What is built from the same nodes and links anew (pointers, sizes, what never changes) is not
// named. Each object begins with a mark of its class, and a Loader that finds another one, or too
// few bytes, or too many, throws: the bytes were not written by this engine.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "bits.hpp"

namespace supernode {

class Saver {
  public:
    static constexpr bool loading = false;

    explicit Saver(std::vector<uint8_t>& to) : to_{to} {}
    template <typename... T>
    void operator()(T&... values);
    void raw(const void* from, size_t bytes) {
        if (!bytes) return;
        const size_t at = to_.size();
        to_.resize(at + bytes);
        std::memcpy(to_.data() + at, from, bytes);
    }
    std::vector<uint8_t>& bytes() { return to_; }

  private:
    std::vector<uint8_t>& to_;
};

class Loader {
  public:
    static constexpr bool loading = true;

    Loader(const uint8_t* from, size_t bytes) : at_{from}, end_{from + bytes} {}
    template <typename... T>
    void operator()(T&... values);
    void raw(void* to, size_t bytes) { std::memcpy(to, take(bytes), bytes); }
    // Where the next bytes are, which count as taken.
    const uint8_t* take(size_t bytes) {
        if (bytes > static_cast<size_t>(end_ - at_)) foreign();
        const uint8_t* start = at_;
        at_ += bytes;
        return start;
    }
    // To be called when everything has been taken.
    void finish() const {
        if (at_ != end_) foreign();
    }
    [[noreturn]] static void foreign() {
        throw std::runtime_error("the state was saved by an engine with other variables");
    }

  private:
    const uint8_t* at_;
    const uint8_t* end_;
};

template <typename A, typename T>
void archive(A& a, T& value) {
    if constexpr (requires { value.archive(a); }) {
        const char* name = typeid(T).name();
        const uint64_t expected =
            digest(reinterpret_cast<const uint8_t*>(name), std::strlen(name), sizeof(T));
        uint64_t mark = expected;
        a.raw(&mark, sizeof mark);
        if (mark != expected) Loader::foreign();
        value.archive(a);
    } else {
        static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
        a.raw(&value, sizeof value);
    }
}

// A sequence whose length is part of the state, of plain values.
template <typename A, typename Sequence>
void archive_sequence(A& a, Sequence& values) {
    uint64_t count = values.size();
    a(count);
    if constexpr (A::loading) {
        values.clear();
        using Value = typename Sequence::value_type;
        static_assert(std::is_trivially_copyable_v<Value>);
        const uint8_t* from = a.take(count > (~uint64_t{0}) / sizeof(Value) ? ~uint64_t{0}
                                                                         : count * sizeof(Value));
        for (; count; --count, from += sizeof(Value)) {
            Value value;
            std::memcpy(&value, from, sizeof value);
            values.push_back(value);
        }
    } else {
        for (const auto& value : values) a.raw(&value, sizeof value);
    }
}

template <typename A, typename T>
void archive(A& a, std::vector<T>& values) {
    archive_sequence(a, values);
}

template <typename A, typename T>
void archive(A& a, std::deque<T>& values) {
    archive_sequence(a, values);
}

template <typename... T>
void Saver::operator()(T&... values) {
    (archive(*this, values), ...);
}

template <typename... T>
void Loader::operator()(T&... values) {
    (archive(*this, values), ...);
}

}  // namespace supernode
