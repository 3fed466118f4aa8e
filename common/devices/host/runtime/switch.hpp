// Stack switch between fibers: pushes the callee-saved registers on the old stack, changes the stack pointer, and pops
// them from the new stack. It takes about 2 ns; swapcontext of ucontext makes a system call each time.
#pragma once
#include <cstddef>
#include <cstdint>

// Saves the stack pointer of the running context in *from and resumes the context with the stack pointer `to`.
extern "C" void lab_switch(void **from, void *to);

#if defined(__x86_64__)
asm(R"(
.text
.p2align 4
.hidden lab_switch
.globl lab_switch
.type lab_switch, @function
lab_switch:
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
.size lab_switch, .-lab_switch
)");
// A function starts with the stack 8 bytes off a multiple of 16, as if `call` had just pushed its return address.
constexpr size_t saved_words = 7, return_word = 6, caller_words = 1;
#elif defined(__aarch64__)
asm(R"(
.text
.p2align 4
.hidden lab_switch
.globl lab_switch
.type lab_switch, %function
lab_switch:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size lab_switch, .-lab_switch
)");
// A function starts with the stack on a multiple of 16; x30, the link register, has its address.
constexpr size_t saved_words = 20, return_word = 11, caller_words = 2;
#else
#error "the host device runs on x86-64 and aarch64"
#endif

// The stack pointer of a new context: the first switch to it enters `start`, which must never return.
inline void *fresh_stack(char *bottom, size_t bytes, void (*start)()) {
  auto *top = reinterpret_cast<uintptr_t *>(reinterpret_cast<uintptr_t>(bottom + bytes) & ~uintptr_t{15});
  top -= caller_words;
  uintptr_t *frame = top - saved_words;
  for (uintptr_t *word = frame; word < top; ++word) *word = 0;
  frame[return_word] = reinterpret_cast<uintptr_t>(start);
  return frame;
}
