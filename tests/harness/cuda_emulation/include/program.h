// The program that runs a list of launches: read from a file, memory written back to another.
//
// All numbers are int64. In: order, seed, whether cp.async copies early; how many buffers, then
// each one's size and bytes; how many launches, then each one's kernel, grid, block, shared bytes,
// how many arguments and, for each, buffer and offset (-1 and a scalar's 8 bytes). Out: the
// buffers' bytes. Each buffer is an allocation of exactly its size, so that AddressSanitizer sees
// the first byte beyond it.
#pragma once

namespace emulation {

struct File {
  FILE* stream;

  int64_t number() {
    int64_t value = 0;
    if (fread(&value, sizeof value, 1, stream) != 1) abort();
    return value;
  }
  uint3 dimensions() {
    const unsigned x = number(), y = number(), z = number();
    return {x, y, z};
  }
};

using KernelCall = void (*)(void** arguments);

EMULATION_CODE static int run_program(const char* in, const char* out, const KernelCall* kernels) {
  File file{fopen(in, "rb")};
  const Order order = static_cast<Order>(file.number());
  const unsigned seed = file.number();
  copy_early = file.number();
  std::vector<std::pair<char*, size_t>> buffers(file.number());
  for (auto& [memory, size] : buffers) {
    size = file.number();
    memory = static_cast<char*>(malloc(size));
    if (fread(memory, 1, size, file.stream) != size) abort();
  }
  for (int64_t launches = file.number(); launches && !failure[0]; launches--) {
    kernel_call = kernels[file.number()];
    Geometry geometry{};
    geometry.grid = file.dimensions();
    geometry.block = file.dimensions();
    geometry.shared_bytes = file.number();
    std::vector<void*> arguments(file.number());
    for (void*& argument : arguments) {
      const int64_t buffer = file.number(), value = file.number();
      argument = buffer < 0 ? reinterpret_cast<void*>(value) : buffers[buffer].first + value;
    }
    kernel_arguments = arguments.data();
    run_grid(geometry, order, seed);
  }
  fclose(file.stream);
  if (failure[0]) {
    fprintf(stderr, "%s\n", failure);
    return 3;
  }
  FILE* written = fopen(out, "wb");
  for (auto& [memory, size] : buffers) fwrite(memory, 1, size, written);
  return fclose(written);
}

}  // namespace emulation
