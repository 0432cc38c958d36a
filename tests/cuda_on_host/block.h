// The threads of one CUDA block: how they wait for each other, and the order in which they run.
#pragma once
#include "cuda_on_host.h"
#include "fibers.h"
#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

namespace cuda_on_host {

constexpr int WARP = 32;

enum class State { Ready, AtBarrier, InWarpOperation, Finished };
enum Schedule { Forward, Reverse, Random };  // the order of threads in a block and of blocks in the grid

struct Thread : Fiber {
    uint3 index{};
    int number = 0;             // in the block
    State state = State::Finished;
    int line = 0;               // of the kernel, where it waits
    int barriers_passed = 0;
    int warp_barriers_passed = 0;
    unsigned mask = 0;          // the lanes its warp operation names
    int operation = 0;
    uint64_t given = 0;         // what it brings to the warp operation
    uint64_t taken[WARP] = {};  // what every lane brought
    char warp_tag[2] = {};      // for ThreadSanitizer: orders __syncwarp; the one of lane 0 is used
};

struct Block {
    std::vector<Thread> threads;
    Thread* running = nullptr;
    size_t shared_bytes = 0;
    void (*kernel)(void*) = nullptr;
    void* kernel_arguments = nullptr;
    Schedule schedule = Forward;
    std::mt19937 random;
    bool blocks_are_concurrent = false;  // ThreadSanitizer: no order between blocks
    char begin_tag = 0, end_tag = 0, barrier_tag[2] = {};
    char error[512] = "";
    bool failed = false;
};
static Block block;
Place place;  // where the running thread is: what kernels read as threadIdx and so on
unsigned char* shared_memory;

NOT_SANITIZED void fail(const char* format, ...) {
    if (block.failed) return;  // the first fault is the cause
    block.failed = true;
    char text[400];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    snprintf(block.error, sizeof block.error, "block (%u,%u,%u): %s", place.block.x, place.block.y, place.block.z, text);
}

NOT_SANITIZED void thread_entry() {
    arrived();
    acquire(&block.begin_tag);
    block.kernel(block.kernel_arguments);
    release(&block.end_tag);
    block.running->state = State::Finished;
    switch_back(*block.running, true);
    abort();
}

// __syncthreads
NOT_SANITIZED void barrier(int line) {
    Thread& self = *block.running;
    self.state = State::AtBarrier;
    self.line = line;
    // Two tags in turn: arriving at one barrier is not ordered before leaving the next.
    char* tag = &block.barrier_tag[self.barriers_passed++ & 1];
    release(tag);
    switch_back(self, false);
    acquire(tag);
}

NOT_SANITIZED bool names(unsigned mask, int lane) { return mask >> lane & 1; }

// The thread in `lane` of the caller's warp; null past the end of a partial last warp.
NOT_SANITIZED Thread* in_lane(int lane) {
    const size_t number = (block.running->number & ~(WARP - 1)) + lane;
    return number < block.threads.size() ? &block.threads[number] : nullptr;
}

NOT_SANITIZED bool all_lanes_wait_here(const Thread& self) {
    for (int lane = 0; lane < WARP; ++lane) {
        const Thread* other = names(self.mask, lane) ? in_lane(lane) : nullptr;
        if (!other) continue;
        const bool same = other->mask == self.mask && other->operation == self.operation && other->line == self.line;
        if (other->state != State::InWarpOperation || !same) return false;
    }
    return true;
}

NOT_SANITIZED void exchange(const Thread& self) {
    uint64_t given[WARP] = {};
    for (int lane = 0; lane < WARP; ++lane)
        if (names(self.mask, lane) && in_lane(lane)) given[lane] = in_lane(lane)->given;
    for (int lane = 0; lane < WARP; ++lane)
        if (names(self.mask, lane) && in_lane(lane)) {
            memcpy(in_lane(lane)->taken, given, sizeof given);
            in_lane(lane)->state = State::Ready;
        }
}

// Wait until every lane that `mask` names is at the same warp operation with the same mask; then all see all values.
NOT_SANITIZED void warp_operation(unsigned mask, int operation, uint64_t value, int line) {
    Thread& self = *block.running;
    const int lane = self.number % WARP;
    if (!names(mask, lane)) fail("line %d: lane %d calls a warp operation whose mask %08x leaves it out", line, lane, mask);
    self.given = value;
    self.mask = mask;
    self.operation = operation;
    self.line = line;
    self.state = State::InWarpOperation;
    if (!block.failed && all_lanes_wait_here(self)) exchange(self);
    else switch_back(self, false);  // the last lane to arrive wakes the others
}

// What the lane `lane_mask` away brought; values travel as bits.
NOT_SANITIZED uint64_t shuffle_xor_bits(unsigned mask, uint64_t bits, int lane_mask, int line) {
    warp_operation(mask, 1, bits, line);
    const Thread& self = *block.running;
    const int source = (self.number % WARP) ^ lane_mask;
    if (!names(mask, source) || !in_lane(source))
        fail("line %d: lane %d shuffles from lane %d, which takes no part", line, self.number % WARP, source);
    return self.taken[source];
}

// __syncwarp: unlike a shuffle it also orders memory.
NOT_SANITIZED void warp_barrier(unsigned mask, int line) {
    Thread& self = *block.running;
    char* tag = &in_lane(0)->warp_tag[self.warp_barriers_passed++ & 1];
    release(tag);
    warp_operation(mask, 2, 0, line);
    acquire(tag);
}

NOT_SANITIZED void start_threads() {
    for (size_t i = 0; i < block.threads.size(); ++i) {
        Thread& thread = block.threads[i];
        const unsigned x = place.block_size.x, y = place.block_size.y;
        thread.number = (int)i;
        thread.index = {(unsigned)i % x, (unsigned)i / x % y, (unsigned)i / (x * y)};
        thread.state = State::Ready;
        thread.barriers_passed = thread.warp_barriers_passed = 0;
        prepare(thread, thread_entry, block.blocks_are_concurrent);
    }
}

// Every thread waits or has left: say what is wrong, or open the barrier. Returns whether threads go on.
NOT_SANITIZED bool next_phase() {
    size_t waiting = 0, finished = 0;
    int line = 0;
    for (Thread& thread : block.threads) {
        if (thread.state == State::InWarpOperation) {
            fail("line %d: thread %d waits in a warp operation (mask %08x) that other lanes never join", thread.line,
                 thread.number, thread.mask);
            return false;
        }
        if (thread.state == State::Finished) { ++finished; continue; }
        if (waiting++ && thread.line != line) {
            fail("lines %d and %d: threads of one block wait at different __syncthreads", line, thread.line);
            return false;
        }
        line = thread.line;
    }
    if (waiting && finished) fail("line %d: %zu threads wait at __syncthreads, %zu have left", line, waiting, finished);
    if (!waiting || block.failed) return false;
    for (Thread& thread : block.threads) thread.state = State::Ready;
    return true;
}

// Run each ready thread to where it waits next. Returns whether any ran.
NOT_SANITIZED bool sweep(std::vector<int>& order) {
    bool any = false;
    if (block.schedule == Random) std::shuffle(order.begin(), order.end(), block.random);
    for (int number : order) {
        Thread& thread = block.threads[number];
        if (thread.state != State::Ready || block.failed) continue;
        block.running = &thread;
        place.thread = thread.index;
        switch_to(thread);
        any = true;
    }
    return any;
}

NOT_SANITIZED void run_block() {
    std::vector<int> order(block.threads.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = (int)i;
    if (block.schedule == Reverse) std::reverse(order.begin(), order.end());
    // All bits set: NaN as a floating-point number, -1 as an integer. Nobody may rely on shared memory being zero.
    for (size_t i = 0; i < block.shared_bytes; ++i) ((volatile unsigned char*)shared_memory)[i] = 0xff;
    start_threads();
    do {
        while (sweep(order)) {}
    } while (!block.failed && next_phase());
}

}  // namespace cuda_on_host
