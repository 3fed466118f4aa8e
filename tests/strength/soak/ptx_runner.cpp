// Main program of the PTX machine for another processor, which cannot be loaded into Python. It executes one launch
// that a file describes, on buffers that it maps from inherited file descriptors to the addresses that the program
// names.
//
//   ptx_runner JOB REPORT
//
// JOB has the arrays of common/devices/ptx/program.py, each behind its length in bytes. It exits with the launch's
// status, and writes its report into the file REPORT. It is compiled as the last of the machine's units.

#include <cstdio>
#include <string>
#include <sys/mman.h>

namespace {

std::string read(FILE *file) {
  uint64_t bytes = 0;
  if (fread(&bytes, sizeof bytes, 1, file) != 1) exit(127);
  std::string part(bytes, '\0');
  if (fread(part.data(), 1, bytes, file) != bytes) exit(127);
  return part;
}

template <class T> const T *array(const std::string &part) { return reinterpret_cast<const T *>(part.data()); }

} // namespace

int main(int, char **argument) {
  FILE *file = fopen(argument[1], "rb");
  if (file == nullptr) return perror("no job"), 127;
  const std::string rows = read(file), more = read(file), filled = read(file), sizes = read(file),
                    launched = read(file), parameters = read(file);
  std::vector<ptx::Buffer> buffers;
  std::vector<std::string> kept(64); // names, at addresses that stay
  while (buffers.size() < array<uint32_t>(sizes)[6]) {
    std::string &name = kept[buffers.size()] = read(file);
    const std::string numbers = read(file), bytes = read(file);
    const uint64_t *n = array<uint64_t>(numbers); // start, bytes, writable, descriptor or -1, offset in its file
    const uint64_t page = n[0] & ~uint64_t(4095), size = (n[0] + n[1] - page + 4095) & ~uint64_t(4095);
    const int fd = int(n[3]), flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void *at = mmap(reinterpret_cast<void *>(page), size, PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, fd,
                    fd < 0 ? 0 : off_t(n[4] - (n[0] - page)));
    if (at != reinterpret_cast<void *>(page)) return perror("cannot map a buffer"), 127;
    memcpy(reinterpret_cast<void *>(n[0]), bytes.data(), bytes.size());
    buffers.push_back({name.c_str(), n[0], n[1], uint32_t(n[2])});
  }
  static char report[1 << 16];
  ptx::Launch launch = *array<ptx::Launch>(launched);
  launch.parameters = array<uint8_t>(parameters);
  launch.buffers = buffers.data();
  launch.report = report;
  launch.report_size = sizeof report;
  const uint32_t *count = array<uint32_t>(sizes);
  const auto *program = ptx_program(array<ptx::Coded>(rows), count[0], array<uint32_t>(more), count[1],
                                    array<ptx::Filled>(filled), count[2], count[3], count[4], count[5], 0);
  const int status = ptx_run(program, &launch);
  FILE *told = fopen(argument[2], "w");
  fputs(report, told);
  fclose(told);
  return status;
}
