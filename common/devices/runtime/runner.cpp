// Main program of a sanitized kernel, because a library with ThreadSanitizer cannot be loaded into Python. It maps its
// buffers from inherited file descriptors, executes the requested launches, and exits with the status of the last one.
//
//   runner WEIGHTS CACHE SCRATCH STATE WAITS COUNTS GUARD BLOCKS WORKERS TIMEOUT    (descriptors, then bytes, blocks,
//   seconds)
//
// Standard input has one launch per line: steps, stage, layer, seed. The report of the runtime goes to standard output,
// the reports of ThreadSanitizer to standard error.
#include "machine.hpp"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

extern "C" int lab_launch(const host::Launch *launch);

namespace {

constexpr int max_races = 16; // one missing barrier causes hundreds, and each takes time to symbolize

char *map(const char *descriptor) {
  struct stat file;
  const int fd = atoi(descriptor);
  if (fstat(fd, &file) != 0) return nullptr;
  void *at = mmap(nullptr, static_cast<size_t>(file.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<char *>(at);
}

} // namespace

// Called by ThreadSanitizer after it has printed a report.
extern "C" void __tsan_on_report(void *) {
  static int reports;
  if (__atomic_add_fetch(&reports, 1, __ATOMIC_RELAXED) == max_races) _exit(0);
}

int main(int, char **argument) {
  char *buffers[6];
  for (int i = 0; i < 6; ++i)
    if ((buffers[i] = map(argument[1 + i])) == nullptr) return perror("cannot map a buffer"), 127;
  const long guard = atol(argument[7]);
  static char report[1 << 16];
  host::Launch launch{};
  launch.weights = reinterpret_cast<uint16_t *>(buffers[0] + guard);
  launch.cache = reinterpret_cast<uint16_t *>(buffers[1] + guard);
  launch.scratch = reinterpret_cast<float *>(buffers[2] + guard);
  launch.state = reinterpret_cast<uint32_t *>(buffers[3] + guard);
  launch.waits = reinterpret_cast<uint32_t *>(buffers[4] + guard);
  launch.counts = reinterpret_cast<host::Counts *>(buffers[5] + guard);
  launch.blocks = atoi(argument[8]);
  launch.workers = atoi(argument[9]);
  launch.timeout = atof(argument[10]);
  launch.report = report;
  launch.report_size = sizeof report;
  int status = 0;
  unsigned long long seed;
  while (status == 0 && scanf("%d %d %d %llu", &launch.steps, &launch.stage, &launch.layer, &seed) == 4) {
    launch.seed = seed;
    status = lab_launch(&launch);
  }
  fputs(report, stdout);
  fflush(stdout);
  _exit(status); // without destructors: threads of a launch that timed out may still run
}
