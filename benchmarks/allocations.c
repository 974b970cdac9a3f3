/* Counts the bytes that a process asks for from malloc and its family.
 *
 * Loaded before a contender's libraries (LD_PRELOAD); the worker reads the count by bytes_asked_for().
 * glibc only: its __libc_ functions do the work.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static _Atomic int64_t total;

int64_t bytes_asked_for(void) { return atomic_load_explicit(&total, memory_order_relaxed); }

static size_t counted(size_t size) {
    atomic_fetch_add_explicit(&total, (int64_t)size, memory_order_relaxed);
    return size;
}

void *malloc(size_t size) { return __libc_malloc(counted(size)); }

void *calloc(size_t count, size_t size) {
    counted(count * size); /* an overflow is refused below */
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) { return __libc_realloc(old, counted(size)); }

void *memalign(size_t alignment, size_t size) { return __libc_memalign(alignment, counted(size)); }

void *aligned_alloc(size_t alignment, size_t size) { return __libc_memalign(alignment, counted(size)); }

int posix_memalign(void **out, size_t alignment, size_t size) {
    void *memory = __libc_memalign(alignment, counted(size));
    if (memory == NULL) return ENOMEM;
    *out = memory;
    return 0;
}
