// Faults of the kernel's own code end the launch and not the process: an access to an inaccessible page, a division by
// zero, an invalid instruction.
//
// The handler runs on its own stack, because the fault may be an overflow of the fiber's stack. It lets the fiber go on
// in `report_fault`, at the top of that stack, which is no longer needed.
#include "runtime.hpp"

#include <csignal>
#include <dlfcn.h>
#include <ucontext.h>
#include <unistd.h>

namespace host {

namespace {

constexpr int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr int kinds = sizeof signals / sizeof *signals;
constexpr ptrdiff_t near_bytes = 16 << 20; // a fault this near to a buffer is reported by its distance
struct sigaction previous[kinds];

struct Fault {
  int signal;
  const char *access;   // read, write, or access
  uintptr_t at, code;   // addresses of the access and of the instruction
  uintptr_t link;       // return address in the link register; 0 if it is on the stack
  const uintptr_t *top; // of the fiber's stack when it faulted
};
thread_local Fault fault;
thread_local bool handled; // a second fault is in the runtime

std::string hex(uintptr_t value) {
  char text[20];
  snprintf(text, sizeof text, "%zx", static_cast<size_t>(value));
  return text;
}

// The offset of an instruction in this library; 0 if it is in another one.
uintptr_t offset_here(uintptr_t code) {
  Dl_info here, there;
  if (dladdr(&lab_entry, &here) == 0 || dladdr(reinterpret_cast<void *>(code), &there) == 0) return 0;
  return here.dli_fbase == there.dli_fbase ? code - reinterpret_cast<uintptr_t>(here.dli_fbase) : 0;
}

// The instruction, or the call that led to it if it is in a function of the C library, such as memcpy: then the first
// return address into this library, in the link register or on the stack.
uintptr_t faulting_code() {
  if (offset_here(fault.code) != 0) return fault.code;
  if (offset_here(fault.link) != 0) return fault.link - 1;
  for (int i = 0; block->owns_stack(fault.top + i) && i < 64; ++i)
    if (offset_here(fault.top[i]) != 0) return fault.top[i] - 1;
  return 0;
}

std::string what() {
  if (fault.signal == SIGFPE) return "a division by zero";
  if (fault.signal == SIGILL) return "an instruction that does not exist";
  return describe_address(fault.access, fault.at);
}

[[noreturn]] void report_fault() {
  block->grid().fail(faulted, what() + " at " + code_name("code", faulting_code()) + " " + block->who() + "\n");
  block->abandon();
  __builtin_unreachable();
}

void pass_on(int number, siginfo_t *info, void *context) {
  int kind = 0;
  while (signals[kind] != number) ++kind;
  const struct sigaction &other = previous[kind];
  if (other.sa_flags & SA_SIGINFO) return other.sa_sigaction(number, info, context);
  if (other.sa_handler != SIG_DFL && other.sa_handler != SIG_IGN) return other.sa_handler(number);
  signal(number, SIG_DFL); // the instruction faults again
}

void on_fault(int number, siginfo_t *info, void *context) {
  if (block == nullptr || !block->runs() || handled) return pass_on(number, info, context);
  handled = true;
  auto &machine = static_cast<ucontext_t *>(context)->uc_mcontext;
  fault = {number, "an access", reinterpret_cast<uintptr_t>(info->si_addr), 0, 0, nullptr};
  const auto stack = reinterpret_cast<uintptr_t>(block->stack_top()) & ~uintptr_t{15};
#if defined(__x86_64__)
  auto &registers = machine.gregs;
  fault.code = registers[REG_RIP];
  fault.top = reinterpret_cast<const uintptr_t *>(registers[REG_RSP]);
  if (number == SIGSEGV) fault.access = registers[REG_ERR] & 2 ? "a write" : "a read";
  registers[REG_RIP] = reinterpret_cast<greg_t>(report_fault);
  registers[REG_RSP] = stack - 8; // as after a call
#else
  fault.code = machine.pc;
  fault.link = machine.regs[30];
  fault.top = reinterpret_cast<const uintptr_t *>(machine.sp);
  machine.pc = reinterpret_cast<uintptr_t>(report_fault);
  machine.sp = stack;
#endif
}

} // namespace

std::string describe_address(const std::string &access, uintptr_t address) {
  if (address == 0) return access + " of the null address, or of one that cannot exist";
  const Launch &l = block->grid().launch();
  const BlockMemory &own = block->memory();
  const struct {
    const char *name;
    const void *start;
    size_t bytes;
  } buffers[] = {{"weights", l.weights, l.bytes[0]}, {"cache", l.cache, l.bytes[1]},
                 {"scratch", l.scratch, l.bytes[2]}, {"state", l.state, l.bytes[3]},
                 {"waits", l.waits, l.bytes[4]},     {"shared", own.shared, lab_entry.shared_bytes}};
  std::string found = access + " of the address 0x" + hex(address) + ", far from every buffer";
  ptrdiff_t nearest = near_bytes;
  for (const auto &buffer : buffers) {
    const ptrdiff_t from = address - reinterpret_cast<uintptr_t>(buffer.start), bytes = buffer.bytes;
    if (from >= 0 && from < bytes) return access + " of the " + buffer.name + " buffer at byte " + std::to_string(from);
    const ptrdiff_t distance = from < 0 ? -from : from - bytes;
    if (distance > nearest) continue;
    nearest = distance;
    found = access + " outside the " + buffer.name + " buffer, " + std::to_string(distance) + " bytes " +
            (from < 0 ? "before its start" : "after its end");
  }
  return found;
}

std::string code_name(const char *word, uintptr_t code) {
  return std::string("{") + word + " " + hex(offset_here(code)) + "}";
}

void catch_faults() {
  struct sigaction action{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (int kind = 0; kind < kinds; ++kind) sigaction(signals[kind], &action, &previous[kind]);
}

void leave_faults() {
  for (int kind = 0; kind < kinds; ++kind) sigaction(signals[kind], &previous[kind], nullptr);
}

SignalStack::SignalStack() {
  handled = false;
  stack_t stack{};
  stack.ss_sp = bytes_;
  stack.ss_size = sizeof bytes_;
  sigaltstack(&stack, nullptr);
}

SignalStack::~SignalStack() {
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  sigaltstack(&none, nullptr);
}

} // namespace host
