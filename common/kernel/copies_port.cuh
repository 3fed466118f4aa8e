// Asynchronous copies, and the barriers that they arrive at; included by port.cuh.
#pragma once

namespace port {

// Asynchronous copies from global to shared memory. The data may be read after copy_wait, by the lane that copied it.
template <int Bytes> DEVICE void copy_async(void *shared, const void *global) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async moves 4, 8 or 16 bytes");
  const unsigned to = shared_address(shared);
  if constexpr (Bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(Bytes) : "memory");
}
// The same of 16 bytes, with a policy.
DEVICE void copy_async(void *shared, const void *global, L2 lines) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "l"(l2_policy(lines))
               : "memory");
}
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Newest> DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(Newest) : "memory"); }

// Barriers in shared memory, sm_80. A phase is named by its number: so many were complete before it.
DEVICE void mbarrier_init(Mbarrier *barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// Lets bulk copies of this thread name the barriers that it has initialized; other threads need a block barrier, too.
DEVICE void mbarrier_init_fence() {
#if __CUDA_ARCH__ >= 900 // the first that has bulk copies
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
DEVICE void mbarrier_arrive(Mbarrier *barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrives; the phase waits for so many bytes more.
DEVICE void mbarrier_arrive_expect(Mbarrier *barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
// Arrives when all that this thread has copied asynchronously so far has landed. Those who wait for the phase may then
// read it.
DEVICE void mbarrier_arrive_copied(Mbarrier *barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// True if the phase is complete; false after about a microsecond, before sm_90 at once. All that arrived in the phase
// is then visible.
DEVICE bool mbarrier_try_wait(Mbarrier *barrier, unsigned phase) {
  unsigned complete;
  asm volatile("{\n.reg .pred p;\n"
#if __CUDA_ARCH__ >= 900
               "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2, 1000;\n"
#else
               "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
#endif
               "selp.u32 %0, 1, 0, p;\n }"
               : "=r"(complete)
               : "r"(shared_address(barrier)), "r"(phase & 1)
               : "memory");
  return complete != 0;
}
// Copies bytes into shared memory. They count as arrived for the barrier's phase in progress, which must expect them.
// Addresses and size are multiples of 16 bytes. sm_90.
DEVICE void copy_bulk(void *shared, const void *global, unsigned bytes, Mbarrier *barrier, L2 lines = L2::pass) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier)), "l"(l2_policy(lines))
      : "memory");
}
// Orders this thread's stores before bulk copies, of data or over it, that it orders after the fence.
DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async;" ::: "memory"); }

} // namespace port
