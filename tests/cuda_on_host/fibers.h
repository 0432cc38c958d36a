// One fiber per CUDA thread: a stack of its own and a place to switch to and from, known to the sanitizers.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <vector>
#include <sys/mman.h>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define NOT_SANITIZED __attribute__((no_sanitize_thread, noinline))
#elif defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define NOT_SANITIZED __attribute__((no_sanitize_address, noinline))
#else
#define NOT_SANITIZED __attribute__((noinline))
#endif
#include "switch.h"

namespace cuda_on_host {

constexpr size_t STACK_BYTES = 128 * 1024;

struct Fiber {
    Context context{};
    void* stack = nullptr;
    void* sanitizer_state = nullptr;  // ThreadSanitizer: the fiber's thread. AddressSanitizer: its fake stack.
};

static Context scheduler;                // where fibers return to
static void* scheduler_state = nullptr;   // as Fiber::sanitizer_state
static const void* scheduler_stack = nullptr;
static size_t scheduler_stack_bytes = 0;

// Happens-before edges that ThreadSanitizer cannot see by itself: all that `release` on a tag precedes its `acquire`.
inline void release(void* tag) {
#if defined(__SANITIZE_THREAD__)
    __tsan_release(tag);
#else
    (void)tag;
#endif
}
inline void acquire(void* tag) {
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(tag);
#else
    (void)tag;
#endif
}

NOT_SANITIZED void* new_stack() {
    return mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

// ThreadSanitizer drops a report whose other thread is gone, so threads are kept to the end of the launch.
static std::vector<void*> retired;

NOT_SANITIZED void retire(Fiber& fiber) {
    if (fiber.stack) munmap(fiber.stack, STACK_BYTES);
    if (fiber.sanitizer_state) retired.push_back(fiber.sanitizer_state);
    fiber.stack = fiber.sanitizer_state = nullptr;
}

NOT_SANITIZED void forget_retired() {
#if defined(__SANITIZE_THREAD__)
    for (void* thread : retired) __tsan_destroy_fiber(thread);
#endif
    retired.clear();
}

// Make `fiber` start at `entry`. `fresh`: it shares no history with the thread that had this fiber before.
NOT_SANITIZED void prepare(Fiber& fiber, void (*entry)(), bool fresh) {
    if (fresh) retire(fiber);
    if (!fiber.stack) fiber.stack = new_stack();
#if defined(__SANITIZE_THREAD__)
    if (!fiber.sanitizer_state) fiber.sanitizer_state = __tsan_create_fiber(0);
#else
    fiber.sanitizer_state = nullptr;
#endif
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(fiber.stack, STACK_BYTES);  // a thread that never ended leaves its variables' borders
#endif
    make_context(fiber.context, fiber.stack, STACK_BYTES, entry);
}

// Scheduler to fiber; returns when the fiber switches back.
NOT_SANITIZED void switch_to(Fiber& fiber) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&scheduler_state, fiber.stack, STACK_BYTES);
#elif defined(__SANITIZE_THREAD__)
    scheduler_state = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber.sanitizer_state, 1);  // 1: a switch is no synchronisation
#endif
    switch_context(scheduler, fiber.context);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(scheduler_state, nullptr, nullptr);
#endif
}

// Fiber to scheduler; returns when the fiber is switched to again. `last`: it never is.
NOT_SANITIZED void switch_back(Fiber& fiber, bool last) {
    (void)last;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(last ? nullptr : &fiber.sanitizer_state, scheduler_stack, scheduler_stack_bytes);
#elif defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(scheduler_state, 1);
#endif
    switch_context(fiber.context, scheduler);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fiber.sanitizer_state, &scheduler_stack, &scheduler_stack_bytes);
#endif
}

// To be called first thing on a fiber's own stack.
NOT_SANITIZED void arrived() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
#endif
}

}  // namespace cuda_on_host
