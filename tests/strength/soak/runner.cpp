// Main program of a kernel for another processor, which cannot be loaded into Python. It maps its buffers from
// inherited file descriptors, executes the requested launches, and exits with the status of the last one.
//
//   runner WEIGHTS CACHE SCRATCH STATE WAITS COUNTS GUARD BLOCKS WORKERS TIMEOUT
//
// A buffer is DESCRIPTOR:START:BYTES. GUARD is in bytes and TIMEOUT in seconds.
//
// Standard input has one launch per line: kernel, last, seed. The report of the runtime goes to standard output.
#include "machine.hpp"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

extern "C" int lab_launch(const host::Launch *launch);

namespace {

// Maps one buffer, with inaccessible pages around it as in common/devices/guarded.py.
char *map(const char *buffer, size_t guard, int access, size_t &bytes) {
  int fd;
  size_t start;
  struct stat file;
  if (sscanf(buffer, "%d:%zu:%zu", &fd, &start, &bytes) != 3 || fstat(fd, &file) != 0) return nullptr;
  const auto size = static_cast<size_t>(file.st_size);
  void *mapped = mmap(nullptr, size, PROT_NONE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char *at = static_cast<char *>(mapped);
  return mprotect(at + guard, size - 2 * guard, access) == 0 ? at + start : nullptr;
}

} // namespace

int main(int, char **argument) {
  static char report[1 << 16];
  host::Launch launch{};
  char *buffers[6];
  const auto guard = static_cast<size_t>(atol(argument[7]));
  for (int i = 0; i < 6; ++i) {
    size_t bytes;
    buffers[i] = map(argument[1 + i], guard, i == 0 ? PROT_READ : PROT_READ | PROT_WRITE, bytes);
    if (buffers[i] == nullptr) return perror("cannot map a buffer"), 127;
    if (i < 5) launch.bytes[i] = bytes;
  }
  launch.weights = reinterpret_cast<uint16_t *>(buffers[0]);
  launch.cache = reinterpret_cast<uint16_t *>(buffers[1]);
  launch.scratch = reinterpret_cast<float *>(buffers[2]);
  launch.state = reinterpret_cast<uint32_t *>(buffers[3]);
  launch.waits = reinterpret_cast<uint32_t *>(buffers[4]);
  launch.counts = reinterpret_cast<host::Counts *>(buffers[5]);
  launch.blocks = atoi(argument[8]);
  launch.workers = atoi(argument[9]);
  launch.timeout = atof(argument[10]);
  launch.report = report;
  launch.report_size = sizeof report;
  int status = 0;
  unsigned long long seed;
  while (status == 0 && scanf("%d %d %llu", &launch.kernel, &launch.last, &seed) == 3) {
    launch.seed = seed;
    status = lab_launch(&launch);
  }
  fputs(report, stdout);
  fflush(stdout);
  _exit(status); // without destructors: threads of a launch that timed out may still run
}
