// After launch.h: a program instead of a library, for the sanitizers, which want to own the process.
// program IN OUT: IN holds grid (3 words), group (3), the number of buffers, then each buffer's size and bytes;
// OUT gets the buffers back. Exit 3: the launch failed; 9: IN cannot be read.
#pragma once

static bool read_words(FILE* file, uint* words, size_t count) { return fread(words, 4, count, file) == count; }

int main(int count, char** names) {
  uint head[7];
  FILE* in = count == 3 ? fopen(names[1], "rb") : nullptr;
  if (!in || !read_words(in, head, 7)) return 9;
  std::vector<void*> buffers;
  std::vector<uint> sizes(head[6]);
  for (uint& size : sizes) {
    if (!read_words(in, &size, 1)) return 9;
    // malloc and not a vector of vectors: a read one byte past a buffer is then seen.
    buffers.push_back(malloc(size));
    if (fread(buffers.back(), 1, size, in) != size) return 9;
  }
  fclose(in);
  if (const char* error = spool_launch(buffers.data(), head, head + 3, 1, nullptr)) {
    fprintf(stderr, "launch: %s\n", error);
    return 3;
  }
  FILE* out = fopen(names[2], "wb");
  for (size_t i = 0; i < sizes.size(); i++) fwrite(buffers[i], 1, sizes[i], out);
  fclose(out);
  for (void* buffer : buffers) free(buffer);
  return 0;
}
