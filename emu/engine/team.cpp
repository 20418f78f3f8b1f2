#include "team.hpp"

#include <algorithm>

namespace supernode {

namespace {

// Looks at the phase before a wait sleeps: a few microseconds to some tens of them.
constexpr unsigned least_patience = 64, most_patience = 2048;

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace

Team::Team(unsigned size, std::function<void(unsigned)> turn, std::function<bool(unsigned)> plan)
    : size_{size}, turn_{std::move(turn)}, plan_{std::move(plan)} {
    for (unsigned number = 1; number < size; ++number)
        threads_.emplace_back([this, number] { work(number); });
}

Team::~Team() {
    stopping_.store(true, std::memory_order_relaxed);
    release(false);
    for (std::thread& thread : threads_) thread.join();
}

void Team::run() {
    if (!plan_(0)) return;
    release(true);
    unsigned patience = most_patience;
    for (uint32_t phase = phase_.load(std::memory_order_relaxed); phase & 1;
         phase = await(phase, patience))
        take_turn(0);
}

void Team::work(unsigned number) {
    unsigned patience = least_patience;
    for (uint32_t phase = 0;;) {
        phase = await(phase, patience);
        if (stopping_.load(std::memory_order_relaxed)) return;
        if (phase & 1) take_turn(number);
    }
}

void Team::take_turn(unsigned number) {
    turn_(number);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) release(plan_(number));
}

void Team::release(bool more) {
    busy_.store(size_, std::memory_order_relaxed);
    phase_.store(((phase_.load(std::memory_order_relaxed) >> 1) + 1) << 1 | more,
                 std::memory_order_release);
    phase_.notify_all();
}

uint32_t Team::await(uint32_t phase, unsigned& patience) const {
    for (unsigned looked = 0; looked < patience; ++looked) {
        const uint32_t found = phase_.load(std::memory_order_acquire);
        if (found != phase) {
            patience = std::min(2 * patience, most_patience);
            return found;
        }
        pause();
    }
    patience = std::max(patience / 2, least_patience);
    phase_.wait(phase, std::memory_order_acquire);
    return phase_.load(std::memory_order_acquire);
}

}  // namespace supernode
