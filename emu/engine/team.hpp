// Threads that do their turns together: one barrier between two turns, and no lock.
//
// The thread that comes to the barrier last plans the next turn while the others wait. Waiting spins
// for a moment, as long as that has been worth it lately, and then sleeps in the kernel, so that
// threads that outnumber the free processors do not keep them from each other.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace supernode {

class Team {
  public:
    // `turn` is called in each thread with its number; thread 0 is the one that calls run. `plan`
    // is called in one thread, with its number; false ends the run. Neither may throw.
    Team(unsigned size, std::function<void(unsigned)> turn, std::function<bool(unsigned)> plan);
    ~Team();
    Team(const Team&) = delete;

    // Plans and takes turns until a plan says that it is over.
    void run();

  private:
    void work(unsigned number);
    void take_turn(unsigned number);
    void release(bool more);
    uint32_t await(uint32_t phase, unsigned& patience) const;

    const unsigned size_;
    const std::function<void(unsigned)> turn_;
    const std::function<bool(unsigned)> plan_;
    // Of each turn, and of each end of a run, another number; odd: a turn is to be taken.
    alignas(64) std::atomic<uint32_t> phase_{0};
    alignas(64) std::atomic<uint32_t> busy_{0};
    std::atomic<bool> stopping_{false};
    std::vector<std::thread> threads_;
};

}  // namespace supernode
