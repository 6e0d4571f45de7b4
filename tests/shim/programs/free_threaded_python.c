// SPDX-License-Identifier: Apache-2.0
// A program that looks like a free-threaded CPython 3.14 to whoever reads its memory, laid out as
// its headers say. The inner frame runs this thread's own copy of the bytecode, at another place
// than the code object's; both references to code carry a tag.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// NOLINTBEGIN(readability-identifier-naming): the interpreter's names.
unsigned long Py_Version = 0x030E0AF0;
char PyCode_Type[512], PyUnicode_Type[512], PyBytes_Type[512];

struct object {
  uint64_t tid;
  uint16_t flags;
  uint8_t mutex, gc_bits;
  uint32_t ref_local;
  int64_t ref_shared;
  void* type;
};
struct text {
  struct object head;
  int64_t length, hash;
  uint8_t interned;
  uint8_t kind_compact_ascii;
  int64_t utf8_length;  // of other than ASCII, as is the next
  char* utf8;
  uint8_t latin1[32];
};
struct bytes {
  struct object head;
  int64_t size, hash;
  uint8_t data[16];
};
struct copies {
  int64_t size;
  uint16_t* entries[3];
};
struct code {
  struct object head;
  int64_t size;
  int first_line;
  struct text *file, *name;
  struct bytes* lines;
  struct copies* copies;
  uint16_t instructions[8];
};
struct frame {
  uintptr_t executable;
  struct frame* previous;
  uint16_t* instruction;
  int32_t copy;
  char owner;
};
struct thread {
  struct thread *previous, *next;
  void* interpreter;
  struct frame* frame;
  uint64_t id;
};
struct interpreter {
  struct thread* threads;
};

static struct text file = {{.type = PyUnicode_Type},
                           13,
                           0,
                           1,
                           1 | 8,
                           0,
                           0,
                           "/job/gr\xF6\xDF"
                           "e.py"};
static struct text inner_name = {{.type = PyUnicode_Type}, 5, 0, 1, 1 | 8, 0, 0, "innen"};
static struct text outer_name = {{.type = PyUnicode_Type},
                                 5,
                                 0,
                                 1,
                                 1 | 8,
                                 0,
                                 0,
                                 "au\xDF"
                                 "en"};
// Two entries of two units each without columns: line +0, then line +1 (form 13, signed varint).
static struct bytes lines = {{.type = PyBytes_Type}, 4, 0, {0xE9, 0, 0xE9, 2}};
static uint16_t own_bytecode[8];
static struct copies copies = {2, {NULL, own_bytecode, NULL}};
static struct code inner = {{.type = PyCode_Type}, 4, 41, &file, &inner_name, &lines, &copies, {0}};
static struct code outer = {{.type = PyCode_Type}, 4, 7, &file, &outer_name, &lines, &copies, {0}};
static struct frame frames[3];
static struct interpreter interpreter;
static struct thread thread = {.interpreter = &interpreter};

struct {
  char cookie[8];
  uint64_t numbers[100];
} _PyRuntime = {"xdebugpy",  // NOLINT(bugprone-reserved-identifier): its name in every interpreter
                {
                    0x030E0AF0,
                    1,  //
                    0,
                    0,
                    0,  // runtime
                    0,
                    0,
                    0,
                    offsetof(struct interpreter, threads),
                    0,
                    0,
                    0,
                    0,
                    0,  // interpreter
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,  //
                    0,
                    0,
                    offsetof(struct thread, next),
                    offsetof(struct thread, interpreter),
                    offsetof(struct thread, frame),
                    offsetof(struct thread, id),
                    0,
                    0,
                    0,  //
                    0,
                    offsetof(struct frame, previous),
                    offsetof(struct frame, executable),
                    offsetof(struct frame, instruction),
                    0,
                    offsetof(struct frame, owner),
                    0,
                    offsetof(struct frame, copy),  //
                    0,
                    offsetof(struct code, file),
                    offsetof(struct code, name),
                    0,
                    offsetof(struct code, lines),
                    offsetof(struct code, first_line),
                    0,
                    0,
                    0,
                    offsetof(struct code, instructions),
                    offsetof(struct code, copies),  //
                    0,
                    offsetof(struct object, type),  //
                    0,
                    0,
                    0,
                    0,  // type
                    0,
                    0,
                    0,  // tuple
                    0,
                    0,
                    0,  // list
                    0,
                    0,
                    0,
                    0,  // set
                    0,
                    0,
                    0,  // dict
                    0,
                    0,  // float
                    0,
                    0,
                    0,  // long
                    0,
                    offsetof(struct bytes, size),
                    offsetof(struct bytes, data),  //
                    0,
                    offsetof(struct text, interned),
                    offsetof(struct text, length),
                    offsetof(struct text, utf8_length),
                }};

void* PyGILState_GetThisThreadState(void) { return &thread; }
void* PyThreadState_GetUnchecked(void) { return NULL; }
void* PyInterpreterState_Main(void) { return &interpreter; }
// NOLINTEND(readability-identifier-naming)

int main(void) {
  copies.entries[0] = inner.instructions;
  interpreter.threads = &thread;
  thread.frame = &frames[0];
  frames[0] = (struct frame){0, &frames[1], NULL, 0, 3};  // an entry of the interpreter
  frames[1] = (struct frame){(uintptr_t)&inner | 1, &frames[2], own_bytecode + 3, 1, 0};
  frames[2] = (struct frame){(uintptr_t)&outer | 1, NULL, outer.instructions + 1, 0, 0};
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) return 2;
  int (*init)(unsigned);
  int (*create)(void**, unsigned, int);
  *(void**)&init = dlsym(library, "cuInit");
  *(void**)&create = dlsym(library, "cuCtxCreate_v2");
  void* context;
  return init(0) || create(&context, 0, 0) || create(&context, 0, 0);
}
