/* Faults of the disk on purpose: counts the calls of a process under a folder, and lets one of them go wrong.
 *
 *     cc -shared -fPIC -O1 -o faults.so faults.c -ldl
 *     LD_PRELOAD=faults.so FAULTS_STATE=file program
 *
 * The state is a file of struct state, shared by all processes that have it, so that one count is of all of them. A process
 * that has no FAULTS_STATE counts nothing, until it calls faults_use(). The calls of C's stdio are counted too: TensorFlow
 * writes with fwrite, whose own write(2) cannot be seen from outside the C library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { NONE, SHORT, FULL, BROKEN, KILL, TORN };

struct state {
    _Atomic long count; /* calls until now */
    long at;            /* the call that goes wrong, from 1 */
    int kind;           /* enum kind */
    int on;             /* from then on every call goes wrong, too (FULL, BROKEN) */
    char folder[1024];  /* with a slash at its end */
};

static struct state *shared;

void faults_use(const char *path) {
    int number = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    shared = NULL;
    if (number < 0) return;
    void *at = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, number, 0);
    close(number);
    if (at != MAP_FAILED) shared = at;
}

__attribute__((constructor)) static void begin(void) { faults_use(getenv("FAULTS_STATE")); }

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static int inside(const char *path) { return !strncmp(path, shared->folder, strlen(shared->folder)); }

static int of_number(int number) {
    char link[64], path[PATH_MAX];
    if (!shared || number < 3) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", number);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return inside(path);
}

static int of_name(int folder, const char *name) {
    char link[64], path[2 * PATH_MAX];
    if (!shared || !name) return 0;
    if (name[0] == '/') return inside(name);
    ssize_t size;
    if (folder == AT_FDCWD) {
        size = getcwd(path, PATH_MAX) ? (ssize_t)strlen(path) : -1;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        size = readlink(link, path, PATH_MAX - 1);
    }
    if (size < 0) return 0;
    snprintf(path + size, sizeof path - (size_t)size, "/%s", name);
    return inside(path);
}

/* Count a call; return what is to go wrong with it. A kill ends every process of the group, before the call. */
static enum kind next(void) {
    long number = atomic_fetch_add(&shared->count, 1) + 1;
    if (number != shared->at && !(shared->on && shared->at && number > shared->at)) return NONE;
    if (shared->kind == KILL) {
        kill(0, SIGKILL);
        for (;;) pause();
    }
    return (enum kind)shared->kind;
}

/* Return whether a call that writes nothing fails. */
static int fails(void) {
    enum kind kind = next();
    if (kind == TORN) {
        kill(0, SIGKILL);
        for (;;) pause();
    }
    if (kind != FULL && kind != BROKEN) return 0;
    errno = kind == FULL ? ENOSPC : EIO;
    return 1;
}

/* Return how many of so many bytes are written, or -1. `torn` says that the process ends after them. */
static ssize_t written(size_t size, int *torn) {
    enum kind kind = next();
    *torn = kind == TORN;
    if (kind == SHORT || kind == TORN) return (ssize_t)(size > 1 ? size / 2 : size);
    if (kind == NONE) return (ssize_t)size;
    errno = kind == FULL ? ENOSPC : EIO;
    return -1;
}

static void end(void) {
    kill(0, SIGKILL);
    for (;;) pause();
}

#define OPENS(name, first, folder, real_call)                                    \
    int name first {                                                             \
        REAL(name);                                                              \
        mode_t mode = 0;                                                         \
        if (flags & (O_CREAT | O_TMPFILE)) {                                     \
            va_list more;                                                        \
            va_start(more, flags);                                               \
            mode = va_arg(more, mode_t);                                         \
            va_end(more);                                                        \
        }                                                                        \
        if ((flags & (O_CREAT | O_WRONLY | O_RDWR)) && of_name(folder, path) && fails()) return -1; \
        return real_call;                                                        \
    }
OPENS(open, (const char *path, int flags, ...), AT_FDCWD, real(path, flags, mode))
OPENS(open64, (const char *path, int flags, ...), AT_FDCWD, real(path, flags, mode))
OPENS(openat, (int folder, const char *path, int flags, ...), folder, real(folder, path, flags, mode))
OPENS(openat64, (int folder, const char *path, int flags, ...), folder, real(folder, path, flags, mode))

ssize_t write(int number, const void *data, size_t size) {
    REAL(write);
    if (!of_number(number)) return real(number, data, size);
    int torn;
    ssize_t most = written(size, &torn);
    ssize_t done = most < 0 ? -1 : real(number, data, (size_t)most);
    if (torn) end();
    return done;
}

#define PWRITE(name, offset_type)                                                   \
    ssize_t name(int number, const void *data, size_t size, offset_type offset) {   \
        REAL(name);                                                                 \
        if (!of_number(number)) return real(number, data, size, offset);            \
        int torn;                                                                   \
        ssize_t most = written(size, &torn);                                        \
        ssize_t done = most < 0 ? -1 : real(number, data, (size_t)most, offset);    \
        if (torn) end();                                                            \
        return done;                                                                \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t writev(int number, const struct iovec *parts, int count) {
    REAL(writev);
    if (!of_number(number) || !count) return real(number, parts, count);
    int torn;
    ssize_t most = written(2, &torn);
    if (most < 0) return -1;
    ssize_t done = most == 2 ? real(number, parts, count) : real(number, parts, 1);
    if (torn) end();
    return done;
}

#define READ(name, more, call)                                          \
    ssize_t name(int number, void *data, size_t size more) {            \
        REAL(name);                                                     \
        if (of_number(number)) {                                        \
            enum kind kind = next();                                    \
            if (kind == TORN) end();                                    \
            if (kind == SHORT && size > 1) size = size / 2;             \
            if (kind == BROKEN) {                                       \
                errno = EIO;                                            \
                return -1;                                              \
            }                                                           \
        }                                                               \
        return call;                                                    \
    }
#define WITH(type) , type offset
READ(read, , real(number, data, size))
READ(pread, WITH(off_t), real(number, data, size, offset))
READ(pread64, WITH(off64_t), real(number, data, size, offset))

size_t fwrite(const void *data, size_t size, size_t count, FILE *file) {
    REAL(fwrite);
    if (!of_number(fileno(file))) return real(data, size, count, file);
    int torn;
    ssize_t most = written(size * count, &torn);
    if (most < 0) return 0;
    if ((size_t)most == size * count && !torn) return real(data, size, count, file);
    size_t done = real(data, 1, (size_t)most, file);
    if (torn) {
        fflush(file);
        end();
    }
    errno = ENOSPC; /* stdio writes all or fails */
    return size ? done / size : 0;
}

#define ONE(result, name, arguments, counted, call) \
    result name arguments {                         \
        REAL(name);                                 \
        if ((counted) && fails()) return -1;        \
        return call;                                \
    }
ONE(int, fflush, (FILE *file), file && of_number(fileno(file)), real(file))
ONE(int, fsync, (int number), of_number(number), real(number))
ONE(int, fdatasync, (int number), of_number(number), real(number))
ONE(int, ftruncate, (int number, off_t size), of_number(number), real(number, size))
ONE(int, ftruncate64, (int number, off64_t size), of_number(number), real(number, size))
ONE(int, rename, (const char *old, const char *new), of_name(AT_FDCWD, new), real(old, new))
ONE(int, renameat, (int a, const char *old, int b, const char *new), of_name(b, new), real(a, old, b, new))
ONE(int, renameat2, (int a, const char *old, int b, const char *new, unsigned flags), of_name(b, new),
    real(a, old, b, new, flags))
ONE(int, link, (const char *old, const char *new), of_name(AT_FDCWD, new), real(old, new))
ONE(int, linkat, (int a, const char *old, int b, const char *new, int flags), of_name(b, new), real(a, old, b, new, flags))
ONE(int, unlink, (const char *path), of_name(AT_FDCWD, path), real(path))
ONE(int, unlinkat, (int folder, const char *path, int flags), of_name(folder, path), real(folder, path, flags))
ONE(int, rmdir, (const char *path), of_name(AT_FDCWD, path), real(path))
ONE(int, mkdir, (const char *path, mode_t mode), of_name(AT_FDCWD, path), real(path, mode))
ONE(int, mkdirat, (int folder, const char *path, mode_t mode), of_name(folder, path), real(folder, path, mode))
ONE(ssize_t, copy_file_range, (int in, off64_t *a, int out, off64_t *b, size_t size, unsigned flags), of_number(out),
    real(in, a, out, b, size, flags))
ONE(ssize_t, sendfile, (int out, int in, off_t *offset, size_t size), of_number(out), real(out, in, offset, size))
ONE(ssize_t, sendfile64, (int out, int in, off64_t *offset, size_t size), of_number(out), real(out, in, offset, size))
