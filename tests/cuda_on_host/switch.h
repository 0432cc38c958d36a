// Leave one stack for another.
//
// swapcontext of the C library does it anywhere, but asks the kernel for the signal mask each time, which takes longer
// than what most threads do between two barriers. So where it can be said in a few instructions, it is.
// NOT_SANITIZED is defined by fibers.h, which includes this.
#pragma once
#include <cstddef>
#include <cstdint>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cuda_on_host {

#if defined(__x86_64__)

struct Context { void* top = nullptr; };  // of the stack that was left; the registers that a call keeps lie there

extern "C" void cuda_on_host_switch(void** left, void* entered) asm("cuda_on_host_switch");
asm(R"(
    .text
    .p2align 4
    .type cuda_on_host_switch, @function
cuda_on_host_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size cuda_on_host_switch, . - cuda_on_host_switch
)");

NOT_SANITIZED inline void make_context(Context& context, void* stack, size_t bytes, void (*entry)()) {
    // As if `entry` had been called and had no caller: a return address of 0 on top, six registers below its own.
    uintptr_t* top = reinterpret_cast<uintptr_t*>(static_cast<char*>(stack) + bytes);
    *--top = 0;
    *--top = reinterpret_cast<uintptr_t>(entry);
    for (int i = 0; i < 6; ++i) *--top = 0;
    context.top = top;
}

NOT_SANITIZED inline void switch_context(Context& left, const Context& entered) {
    cuda_on_host_switch(&left.top, entered.top);
}

#else

using Context = ucontext_t;

NOT_SANITIZED inline void make_context(Context& context, void* stack, size_t bytes, void (*entry)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = bytes;
    context.uc_link = nullptr;
    makecontext(&context, entry, 0);
}

NOT_SANITIZED inline void switch_context(Context& left, const Context& entered) { swapcontext(&left, &entered); }
#endif

}  // namespace cuda_on_host
