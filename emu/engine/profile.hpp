// Where the time of one thread goes, by sampling: one window in seven is measured part by part, and
// stands for all. (Seven shares no factor with the number of windows between two instants of the
// host, so none of these is left out.)
//
// What a window does is told by `lap` and `edge` calls in the code itself, which is compiled twice:
// with a Profile, and with NoProfile, of which nothing is left. Reading the clock takes time; what it
// takes is measured first and subtracted. What takes longer than anything the engine does was
// interrupted, and is left out. Windows as a whole are measured in processor time of their thread, so
// that other work on the machine does not count.
#pragma once

#include <cstdint>
#include <ctime>
#include <vector>

namespace supernode {

// What is done in a window beside evaluating tiles. `rest` is what is none of the others: finding
// out what is to be run.
enum class Work : unsigned { links, host, memory, streams, rest, count };

struct NoProfile {
    void lap(Work) {}
    void edge(unsigned) {}
};

class Profile {
  public:
    // `kinds` of tiles are told apart.
    explicit Profile(unsigned kinds);

    // Around a window; `begin` returns whether it is to be measured.
    bool begin() {
        start_ = processor_ns();
        last_ = clock();
        return ++windows_ % every == 0;
    }
    void end() {
        if (windows_ % every == 0) lap(Work::rest);
        window_ns_ += processor_ns() - start_;
    }
    // What has been done since the last call, or the begin, was this, or an evaluation of a tile of
    // this kind.
    void lap(Work work) { add(work_[static_cast<unsigned>(work)]); }
    void edge(unsigned kind) { add(tiles_[kind]); }

    // Processor time in windows; and what was measured of it, for ratios.
    uint64_t window_ns() const { return window_ns_; }
    uint64_t ticks(Work work) const { return net(work_[static_cast<unsigned>(work)]); }
    uint64_t ticks(unsigned kind) const { return net(tiles_[kind]); }
    uint64_t windows() const { return windows_; }

  private:
    static constexpr uint64_t every = 7;

    static uint64_t nanoseconds(clockid_t which) {
        timespec time;
        clock_gettime(which, &time);
        return uint64_t{1'000'000'000} * time.tv_sec + time.tv_nsec;
    }
    static uint64_t processor_ns() { return nanoseconds(CLOCK_THREAD_CPUTIME_ID); }
    // In ticks of the processor, where a program may read these: that takes a tenth of the time.
    static uint64_t clock() {
#if defined(__x86_64__)
        return __builtin_ia32_rdtsc();
#else
        return nanoseconds(CLOCK_MONOTONIC);
#endif
    }

    // About a millisecond, give or take what clocks differ by.
    static constexpr uint64_t most_ticks = 3'000'000;

    struct Sum {
        uint64_t ticks = 0, laps = 0;
    };

    void add(Sum& sum) {
        const uint64_t now = clock(), ticks = now - last_;
        last_ = now;
        if (ticks > most_ticks) [[unlikely]] return;
        sum.ticks += ticks;
        ++sum.laps;
    }
    uint64_t net(const Sum& sum) const {
        const uint64_t cost = sum.laps * lap_ticks_;
        return sum.ticks > cost ? sum.ticks - cost : 0;
    }

    uint64_t windows_ = 0, window_ns_ = 0, start_ = 0, last_ = 0, lap_ticks_ = 0;
    std::vector<Sum> work_, tiles_;
};

}  // namespace supernode
