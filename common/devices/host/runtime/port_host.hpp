// Host implementation of port.cuh: loads, stores, atomics, barriers and copies, executed by fibers and counted.
//
// Loads, stores and counting are inline; every function that can make a thread wait is in the runtime.
#pragma once
#include "machine.hpp"

#define DEVICE inline
#define UNROLL
#define ROLLED

namespace port {

inline int thread() { return host::current->index; }
inline int block() { return host::current->block; }
inline int blocks() { return host::current->blocks; }
inline void mark(Stage stage, int layer) { host::mark(static_cast<int>(stage), layer); }
inline void count_grid_barrier() {
  if (host::current->block == 0 && host::current->index == 0) host::count(&host::Counts::grid_barriers);
}

static unsigned long long stamps; // static: an inline variable would prevent the library from being unloaded
inline void stamp(unsigned long long *to) { *to = __atomic_add_fetch(&stamps, 1, __ATOMIC_RELAXED); }

inline float as_float(unsigned bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
inline unsigned as_bits(float value) {
  unsigned bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float from_half(unsigned short bits) { // the same sign, exponent and fraction, with an exponent 112 less
  return as_float((bits & 0x8000u) << 16 | (bits & 0x7fffu) << 13) * 0x1p112f;
}
inline void sincos_turns(double turns, double *sine, double *cosine) {
  constexpr double radians = 6.283185307179586476925;
  *sine = sin(turns * radians);
  *cosine = cos(turns * radians);
}
inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
inline float quotient(float x, float y) { return x / y; }

template <Data Kind, int Bytes> inline Packet<Bytes> load(const void *from, host::Site site = host::here()) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "a load is 32, 64 or 128 bits");
  host::check_aligned(from, Bytes, site);
  host::count_load<Bytes>("a load", static_cast<int>(Kind), from, site);
  Packet<Bytes> packet;
  memcpy(packet.word, from, Bytes);
  return packet;
}
template <int Bytes, L1 = L1::allocate>
inline Packet<Bytes> load_weights(const void *from, host::Site site = host::here()) {
  host::check_buffer("load_weights", from, host::of_weights, site); // ld.global.nc: of what no thread writes
  return load<Data::weights, Bytes>(from, site);
}
template <int Bytes> inline void store_packet(void *to, const Packet<Bytes> &packet, host::Site site = host::here()) {
  host::check_aligned(to, Bytes, site);
  host::check_buffer("store_packet", to, host::of_cache | host::of_scratch | host::of_shared, site);
  memcpy(to, packet.word, Bytes);
}
inline float load_weight(const bf16 *from, host::Site site = host::here()) {
  host::check_buffer("load_weight", from, host::of_weights, site);
  host::count_load<2>("load_weight", static_cast<int>(Data::weights), from, site);
  return as_float(static_cast<unsigned>(*from) << 16);
}
inline float load_activation(const float *from, host::Site site = host::here()) {
  host::count_load<4>("load_activation", static_cast<int>(Data::activations), from, site);
  return *from;
}
inline void store_activation(float *to, float value, host::Site site = host::here()) {
  host::check_buffer("store_activation", to, host::of_scratch | host::of_shared, site);
  host::count(&host::Counts::stored_activations, 4);
  *to = value;
}
inline void store_kv(bf16 *to, bf16 value, host::Site site = host::here()) {
  host::count_store_kv(to, sizeof value, site);
  *to = value;
  if constexpr (loader_warps > 0) host::stored_entry(to);
}
inline void store_kv(unsigned *to, unsigned value, host::Site site = host::here()) {
  host::count_store_kv(to, sizeof value, site);
  *to = value;
  if constexpr (loader_warps > 0) host::stored_entry(to);
}

inline void prefetch_l2(const void *address, host::Site site = host::here()) {
  host::check_buffer("prefetch_l2", address, host::of_weights, site);
  host::count(&host::Counts::prefetched, host::line_bytes);
}
inline void prefetch_bulk(const void *address, unsigned bytes, host::Site site = host::here()) {
  if (bytes == 0 || bytes % 16 != 0) host::trap("prefetch_bulk of a size that is no multiple of 16 bytes", site);
  host::check_aligned(address, 16, site);
  host::check_buffer("prefetch_bulk", address, host::of_weights, site);
  host::check_buffer("prefetch_bulk", static_cast<const char *>(address) + bytes - 1, host::of_weights, site);
  host::count(&host::Counts::prefetched, bytes);
}
inline void touch_weights(const void *address, host::Site site = host::here()) {
  host::check_buffer("touch_weights", address, host::of_weights, site);
  host::count(&host::Counts::prefetched, host::line_bytes);
}

// Inlined, so that the return address of the runtime's function tells the place.
#define PLACED [[gnu::always_inline]] inline
PLACED void block_barrier(host::Site site = host::here()) { host::block_barrier(site); }
PLACED void named_sync(int id, int threads, host::Site site = host::here()) {
  host::named_barrier(id, threads, true, site);
}
PLACED void named_arrive(int id, int threads, host::Site site = host::here()) {
  host::named_barrier(id, threads, false, site);
}
PLACED void warp_barrier(host::Site site = host::here()) { host::warp_barrier(site); }
PLACED float shuffle_xor(float value, int mask, host::Site site = host::here()) {
  return as_float(host::exchange(as_bits(value), mask, site));
}
PLACED int shuffle_xor(int value, int mask, host::Site site = host::here()) {
  return static_cast<int>(host::exchange(static_cast<uint32_t>(value), mask, site));
}
#undef PLACED

inline unsigned add_acq_rel(unsigned *word, unsigned value) {
  host::count(&host::Counts::atomics);
  const unsigned before = __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
  host::progressed();
  return before;
}
inline unsigned load_acquire(const unsigned *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
inline void store_release(unsigned *word, unsigned value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
  host::progressed();
}
inline void max_relaxed(unsigned long long *word, unsigned long long value) {
  host::count(&host::Counts::atomics);
  unsigned long long seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (seen < value && !__atomic_compare_exchange_n(word, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  host::progressed();
}
inline unsigned long long exchange_relaxed(unsigned long long *word, unsigned long long value) {
  host::count(&host::Counts::atomics);
  const unsigned long long before = __atomic_exchange_n(word, value, __ATOMIC_RELAXED);
  host::progressed();
  return before;
}
inline void publish(float *to, unsigned bits, host::Site site = host::here()) {
  host::check_buffer("publish", to, host::of_scratch, site);
  host::count(&host::Counts::stored_activations, 4);
  __atomic_store_n(reinterpret_cast<unsigned *>(to), bits, __ATOMIC_RELAXED);
  host::published();
}
inline Packet<16> look(const float *from, host::Site site = host::here()) {
  host::check_aligned(from, 16, site);
  host::check_buffer("look", from, host::of_scratch, site);
  Packet<16> packet;
  for (int i = 0; i < 4; ++i)
    packet.word[i] = __atomic_load_n(reinterpret_cast<const unsigned *>(from) + i, __ATOMIC_RELAXED);
  return packet;
}
inline void add_relaxed(unsigned long long *word, unsigned long long value, host::Site site = host::here()) {
  host::check_aligned(word, 8, site);
  host::check_buffer("add_relaxed", word, host::of_scratch, site);
  host::count(&host::Counts::atomics);
  __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
  host::published();
}
inline void look_pair(const unsigned long long *from, unsigned long long *to, host::Site site = host::here()) {
  host::check_aligned(from, 16, site);
  host::check_buffer("look_pair", from, host::of_scratch, site);
  for (int i = 0; i < 2; ++i) to[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
}
inline void fence() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
inline void count_looked(const float *from, host::Site site = host::here()) {
  host::count_load<16>("look", static_cast<int>(Data::activations), from, site);
}
inline void spin_pause(host::Site site = host::here()) { host::spin_pause(site); }
inline void spin_again(host::Site site = host::here()) { host::spin_pause(site); }
[[noreturn]] inline void trap(host::Site site = host::here()) { host::trap("trap", site); }

template <int Bytes> inline void copy_async(void *shared, const void *global, host::Site site = host::here()) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async moves 4, 8 or 16 bytes");
  host::copy_async(shared, global, Bytes, site);
}
inline void copy_async(void *shared, const void *global, L2 lines, host::Site site = host::here()) {
  if (lines == L2::keep) host::count(&host::Counts::kept, 16);
  host::copy_async(shared, global, 16, site);
}
inline void copy_commit() { host::copy_commit(); }
template <int Newest> inline void copy_wait() { host::copy_wait(Newest); }

inline void mbarrier_init(Mbarrier *barrier, int arrivals, host::Site site = host::here()) {
  host::mbarrier_init(barrier, arrivals, site);
}
inline void mbarrier_init_fence() { host::mbarrier_init_fence(); }
inline void mbarrier_arrive(Mbarrier *barrier, host::Site site = host::here()) {
  host::mbarrier_arrive(barrier, 0, site);
}
inline void mbarrier_arrive_expect(Mbarrier *barrier, unsigned bytes, host::Site site = host::here()) {
  host::mbarrier_arrive(barrier, bytes, site);
}
inline void mbarrier_arrive_copied(Mbarrier *barrier, host::Site site = host::here()) {
  host::mbarrier_arrive_copied(barrier, site);
}
inline bool mbarrier_try_wait(Mbarrier *barrier, unsigned phase, host::Site site = host::here()) {
#if PASSED_TILES // a phase may then be one of an old ring, known by its parity
  host::mbarrier_wait(barrier, phase, true, site);
#else
  host::mbarrier_wait(barrier, phase, false, site);
#endif
  return true; // a GPU may give up earlier
}
inline void copy_bulk(void *shared, const void *global, unsigned bytes, Mbarrier *barrier, L2 lines = L2::pass,
                      host::Site site = host::here()) {
  if (lines == L2::keep) host::count(&host::Counts::kept, bytes);
  host::copy_bulk(shared, global, bytes, barrier, site);
}
inline void fence_proxy_async() { host::fence_proxy_async(); }

} // namespace port

#define KERNEL_ENTRY(Kernel, Threads, BlocksPerSm)                                                                     \
  HOST_ENTRY(Kernel, Threads, run<Kernel>({l.weights, l.cache, l.scratch, l.state, l.waits}, shared, l.last))

// All stages share one entry; Launch::kernel selects one.
#define STAGE_ENTRY(Kernel, Threads, S)                                                                                \
  inline void stage_##S(const host::Launch &l, void *shared) {                                                         \
    run_stage<Kernel, Stage::S>({l.weights, l.cache, l.scratch, l.state, l.waits}, shared, l.last);                    \
  }
#define STAGE_TABLE(Kernel, Threads, ...)                                                                              \
  constexpr void (*stage_table[])(const host::Launch &, void *) = {__VA_ARGS__};                                       \
  HOST_ENTRY(Kernel, Threads, stage_table[l.kernel](l, shared))

#define HOST_ENTRY(Kernel, Threads, call)                                                                              \
  extern "C" {                                                                                                         \
  extern const host::Entry lab_entry;                                                                                  \
  const host::Entry lab_entry = {Threads, block_threads, sizeof(typename Kernel::Shared),                              \
                                 [](const host::Launch &l, void *shared) { call; }};                                   \
  }
