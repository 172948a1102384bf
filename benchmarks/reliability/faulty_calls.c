/* A layer before the C library: one call that changes files in a folder fails, does half, or is the process's last.

   faulty_arm(folder, kind, number, fault, log): of the calls of this kind on files of that folder (none counts all and
   harms none) the one with this number gets the fault: an errno, HALF of a write and a full disk from there on, or the
   end of the process. The log gets a line for each file that is made, written, made safe (fsync) or renamed. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN, WRITE, SYNC, RENAME, UNLINK, MKDIR, TRUNCATE, LOCK, CLOSE, LINK, KINDS };
enum { NONE = 0, KILL = -1, HALF = -2 };

static char folder[PATH_MAX];
static int armed, wanted = -1, fault, full, written_log = -1;
static long counts[KINDS], number;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

void faulty_arm(const char *where, int kind, long at, int what, int log) {
    snprintf(folder, sizeof folder, "%s", where);
    memset(counts, 0, sizeof counts);
    wanted = kind, number = at, fault = what, full = 0, written_log = log, armed = 1;
}
void faulty_disarm(void) { armed = 0; }
long faulty_count(int kind) { return counts[kind]; }

static int inside(const char *path) {
    size_t length = strlen(folder);
    if (!armed || !path) return 0;
    return path[0] != '/' || (!strncmp(path, folder, length) && (path[length] == '/' || !path[length]));
}

static const char *path_of(int fd) {
    static __thread char found[PATH_MAX];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, found, sizeof found - 1);
    if (length < 0) return NULL;
    found[length] = 0;
    return found;
}

static int mine(int fd) {
    const char *path = armed ? path_of(fd) : NULL;
    return path && path[0] == '/' && inside(path);
}

static void note(char what, const char *path, const char *other) {
    char line[2 * PATH_MAX + 8];
    int length = snprintf(line, sizeof line, "%c\t%s\t%s\n", what, path ? path : "", other ? other : "");
    if (armed && written_log >= 0) syscall(SYS_write, written_log, line, length);
}

/* 0: go on; otherwise the call fails with errno set, or half of it is to be done (HALF). */
static int struck(int kind) {
    if (full && (kind == WRITE || kind == OPEN)) return errno = ENOSPC;
    if (++counts[kind] != number || kind != wanted) return 0;
    if (fault == KILL) raise(SIGKILL);
    if (fault == HALF) return full = 1, HALF;
    if (fault != NONE) return errno = fault;
    return 0;
}

static int opening(int flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT); }

#define OPENER(name)                                                                     \
    int name(const char *path, int flags, ...) {                                         \
        va_list rest;                                                                    \
        va_start(rest, flags);                                                           \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;          \
        va_end(rest);                                                                    \
        int ours = opening(flags) && inside(path);                                       \
        if (ours && struck(OPEN)) return -1;                                             \
        int anew = ours && (flags & O_CREAT) && access(path, F_OK);                      \
        int fd = REAL(name)(path, flags, mode);                                          \
        if (fd >= 0 && anew) note('C', path_of(fd), NULL);                               \
        return fd;                                                                       \
    }
OPENER(open)
OPENER(open64)

#define WRITER(name, TAIL, TAILARGS)                                                     \
    ssize_t name(int fd, const void *bytes, size_t size TAIL) {                          \
        if (mine(fd)) {                                                                  \
            int how = struck(WRITE);                                                     \
            if (how == HALF) size = size / 2 ? size / 2 : size;                          \
            else if (how) return -1;                                                     \
            note('W', path_of(fd), NULL);                                                \
        }                                                                                \
        return REAL(name)(fd, bytes, size TAILARGS);                                     \
    }
#define COMMA ,
WRITER(write, , )
WRITER(pwrite, COMMA off_t at, COMMA at)
WRITER(pwrite64, COMMA off64_t at, COMMA at)

#define SYNCER(name)                                                                     \
    int name(int fd) {                                                                   \
        if (mine(fd)) {                                                                  \
            if (struck(SYNC)) return -1;                                                 \
            int done = REAL(name)(fd);                                                   \
            if (!done) note('S', path_of(fd), NULL);                                     \
            return done;                                                                 \
        }                                                                                \
        return REAL(name)(fd);                                                           \
    }
SYNCER(fsync)
SYNCER(fdatasync)

int rename(const char *from, const char *to) {
    if (inside(to)) {
        if (struck(RENAME)) return -1;
        note('R', from, to);
    }
    return REAL(rename)(from, to);
}

int linkat(int folder_from, const char *from, int folder_to, const char *to, int flags) {
    if (inside(to)) {
        if (struck(LINK)) return -1;
        note('L', path_of(folder_from), to);  /* a file without a name gets one */
    }
    return REAL(linkat)(folder_from, from, folder_to, to, flags);
}

int unlink(const char *path) {
    if (inside(path) && struck(UNLINK)) return -1;
    return REAL(unlink)(path);
}

int mkdir(const char *path, mode_t mode) {
    if (inside(path) && struck(MKDIR)) return -1;
    return REAL(mkdir)(path, mode);
}

#define CUTTER(name, KIND)                                                               \
    int name(int fd, KIND size) {                                                        \
        if (mine(fd) && struck(TRUNCATE)) return -1;                                     \
        return REAL(name)(fd, size);                                                     \
    }
CUTTER(ftruncate, off_t)
CUTTER(ftruncate64, off64_t)

int flock(int fd, int how) {
    if (mine(fd) && struck(LOCK)) return -1;
    return REAL(flock)(fd, how);
}

int close(int fd) {
    if (mine(fd) && struck(CLOSE)) {
        int error = errno;
        REAL(close)(fd);
        errno = error;
        return -1;
    }
    return REAL(close)(fd);
}
