// Changing stacks: saves the callee-saved registers, swaps the stack pointer. No library does it without a system call.
#pragma once

extern "C" void spool_switch(void** save, void* to);

#if defined(__x86_64__)
asm(R"(
.text
.local spool_switch
.type spool_switch,@function
.p2align 4
spool_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size spool_switch,.-spool_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.p2align 4
spool_switch:
_spool_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
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
  ldp x19, x20, [sp, #0]
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
)");
#else
#error "fibers are written for x86-64 and 64-bit Arm"
#endif

namespace spool {
// A stack that, when first switched to, calls `entry` and never returns from it.
inline void* fresh_stack(char* top, void (*entry)()) {
  void** sp = (void**)((uintptr_t)top & ~(uintptr_t)15);
#if defined(__x86_64__)
  *--sp = nullptr;  // keeps the stack aligned as after a call
  *--sp = (void*)entry;
  for (int i = 0; i < 6; i++) *--sp = nullptr;
#else
  sp -= 20;
  memset(sp, 0, 160);
  sp[11] = (void*)entry;  // x30, the return address
#endif
  return sp;
}
}  // namespace spool
