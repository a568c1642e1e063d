/* A library to preload that records every call that changes files below one directory, or kills the process before it.

   CRASH_ROOT names the directory (absolute), CRASH_LOG the file that records are appended to. Each record is
   struct head, then `first` bytes, then `second` bytes; tests/crash/recording.py reads them. A program under test may
   call crash_mark(text) to record a point in its run, and crash_arm(n) to be killed before its n-th change from then
   on (1 is the next one). With crash_arm, sends on sockets count as changes, too, as a database may commit by them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATE = 1, WRITE, TRUNCATE, SYNC, RENAME, UNLINK, MKDIR, RMDIR, LINK, SYNC_DIRECTORY, MARK };

struct head { uint32_t kind, first; uint64_t inode, offset, second; };

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static const char *root;
static size_t root_length;
static int log_fd = -1;
static long armed;

#define REAL(name) ({ static __typeof__(&name) real_; if (!real_) real_ = dlsym(RTLD_NEXT, #name); real_; })

__attribute__((constructor)) static void begin(void) {
    root = getenv("CRASH_ROOT");
    const char *log = getenv("CRASH_LOG");
    if (root) root_length = strlen(root);
    if (log) log_fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int is_below(const char *path) {
    return root && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static void put(const void *data, size_t size) {
    const char *at = data;
    while (size) {
        ssize_t done = syscall(SYS_write, log_fd, at, size);
        if (done <= 0) abort();
        at += done; size -= done;
    }
}

static void record(uint32_t kind, uint64_t inode, uint64_t offset, const void *first, size_t n1, const void *second,
                   size_t n2) {
    if (log_fd < 0) return;
    struct head head = { kind, n1, inode, offset, n2 };
    put(&head, sizeof head);
    put(first, n1);
    put(second, n2);
}

/* Kill the process if it is armed for this change; called before each change. */
static void change(void) {
    if (armed > 0 && !--armed) { syscall(SYS_kill, getpid(), SIGKILL); for (;;) pause(); }
}

static void enter(void) { pthread_mutex_lock(&lock); }
static void leave(void) { int kept = errno; pthread_mutex_unlock(&lock); errno = kept; }

/* Get the path of an open file, and return whether it is below the root. */
static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path);
}

/* Get the absolute path of a name, with symbolic links in its directory resolved, and return whether it is below the
   root. */
static int resolve(int directory, const char *name, char *path) {
    char joined[2 * PATH_MAX], base[PATH_MAX];
    if (name[0] == '/') snprintf(joined, sizeof joined, "%s", name);
    else {
        if (directory == AT_FDCWD) { if (!getcwd(base, sizeof base)) return 0; }
        else path_of(directory, base);
        snprintf(joined, sizeof joined, "%s/%s", base, name);
    }
    size_t length = strlen(joined);
    while (length > 1 && joined[length - 1] == '/') joined[--length] = 0;
    char *slash = strrchr(joined, '/');
    if (!slash || slash == joined) { snprintf(path, PATH_MAX, "%s", joined); return is_below(path); }
    *slash = 0;
    if (!realpath(joined, base)) return 0;
    if (snprintf(path, PATH_MAX, "%s/%s", base, slash + 1) >= PATH_MAX) return 0;
    return is_below(path);
}

static uint64_t inode_of(int fd) { struct stat found; return fstat(fd, &found) ? 0 : found.st_ino; }

static uint64_t inode_at(const char *path) {
    struct stat found;
    return fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW) ? 0 : found.st_ino;
}

void crash_mark(const char *text) { enter(); record(MARK, 0, 0, text, strlen(text), 0, 0); leave(); }
void crash_arm(long n) { armed = n; }

/* ---- opening ---- */

static int opened(int directory, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    int watched = flags & (O_CREAT | O_TRUNC) && resolve(directory, name, path);
    enter();
    int is_new = watched && !inode_at(path);
    uint64_t old_size = 0;
    if (watched) {
        struct stat found;
        if (!is_new && !stat(path, &found)) old_size = found.st_size;
        if (is_new || (flags & O_TRUNC && old_size)) change();
    }
    int fd = syscall(SYS_openat, directory, name, flags, mode);
    if (fd >= 0 && watched) {
        if (is_new) record(CREATE, inode_of(fd), 0, path, strlen(path), 0, 0);
        else if (flags & O_TRUNC && old_size) record(TRUNCATE, inode_of(fd), 0, 0, 0, 0, 0);
    }
    leave();
    return fd;
}

#define MODE(last) mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, last); mode = va_arg(more, mode_t); va_end(more); }
int open(const char *name, int flags, ...) { MODE(flags) return opened(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags) return opened(AT_FDCWD, name, flags, mode); }
int openat(int at, const char *name, int flags, ...) { MODE(flags) return opened(at, name, flags, mode); }
int openat64(int at, const char *name, int flags, ...) { MODE(flags) return opened(at, name, flags, mode); }
int creat(const char *name, mode_t mode) { return opened(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *name, mode_t mode) { return opened(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* ---- writing ---- */

static int watched(int fd) { char path[PATH_MAX]; return root && path_of(fd, path); }

static void wrote(int fd, const void *data, ssize_t size, off_t offset) {
    record(WRITE, inode_of(fd), offset, 0, 0, data, size);
    if (fcntl(fd, F_GETFL) & O_DSYNC) record(SYNC, inode_of(fd), 0, 0, 0, 0, 0);
}

static off_t place_of(int fd, ssize_t size) {  /* return the offset at which a completed write began */
    return lseek(fd, 0, SEEK_CUR) - size;
}

ssize_t write(int fd, const void *data, size_t size) {
    if (!watched(fd)) return syscall(SYS_write, fd, data, size);
    enter(); change();
    ssize_t done = syscall(SYS_write, fd, data, size);
    if (done > 0) wrote(fd, data, done, place_of(fd, done));
    leave();
    return done;
}

static ssize_t placed(int fd, const void *data, size_t size, off_t offset) {
    if (!watched(fd)) return syscall(SYS_pwrite64, fd, data, size, offset);
    enter(); change();
    ssize_t done = syscall(SYS_pwrite64, fd, data, size, offset);
    if (done > 0) wrote(fd, data, done, offset);
    leave();
    return done;
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return placed(fd, data, size, offset); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) { return placed(fd, data, size, offset); }

static ssize_t gathered(int fd, const struct iovec *parts, int count, off_t offset) {
    size_t total = 0;
    for (int n = 0; n < count; n++) total += parts[n].iov_len;
    char *all = malloc(total + 1), *at = all;
    for (int n = 0; n < count; n++) at = mempcpy(at, parts[n].iov_base, parts[n].iov_len);
    ssize_t done = offset < 0 ? write(fd, all, total) : placed(fd, all, total, offset);
    int kept = errno;
    free(all);
    errno = kept;
    return done;
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    return watched(fd) ? gathered(fd, parts, count, -1) : syscall(SYS_writev, fd, parts, count);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
    return watched(fd) ? gathered(fd, parts, count, offset) : syscall(SYS_pwritev, fd, parts, count, offset, 0L);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    return pwritev(fd, parts, count, offset);
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    return watched(fd) ? gathered(fd, parts, count, offset) : REAL(pwritev2)(fd, parts, count, offset, flags);
}

/* Copies inside the kernel fail, so that the program copies by writes. */
ssize_t sendfile(int to, int from, off_t *offset, size_t size) {
    if (watched(to)) { errno = ENOTSOCK; return -1; }
    return syscall(SYS_sendfile, to, from, offset, size);
}
ssize_t sendfile64(int to, int from, off64_t *offset, size_t size) { return sendfile(to, from, offset, size); }
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *where, size_t size, unsigned flags) {
    if (watched(to)) { errno = EXDEV; return -1; }
    return syscall(SYS_copy_file_range, from, at, to, where, size, flags);
}

static int cut(int fd, off_t size) {
    if (!watched(fd)) return syscall(SYS_ftruncate, fd, size);
    enter(); change();
    int answer = syscall(SYS_ftruncate, fd, size);
    if (!answer) record(TRUNCATE, inode_of(fd), size, 0, 0, 0, 0);
    leave();
    return answer;
}
int ftruncate(int fd, off_t size) { return cut(fd, size); }
int ftruncate64(int fd, off64_t size) { return cut(fd, size); }

static int allocated(int fd, off_t offset, off_t size) {  /* extend the file sparsely, and keep its content */
    struct stat found;
    if (!fstat(fd, &found) && offset + size > found.st_size) return cut(fd, offset + size) ? errno : 0;
    return 0;
}
int posix_fallocate(int fd, off_t offset, off_t size) {
    return watched(fd) ? allocated(fd, offset, size) : REAL(posix_fallocate)(fd, offset, size);
}
int posix_fallocate64(int fd, off64_t offset, off64_t size) {
    return watched(fd) ? allocated(fd, offset, size) : REAL(posix_fallocate64)(fd, offset, size);
}

/* ---- syncs ---- */

static int synced(int fd, long call) {
    if (!watched(fd)) return syscall(call, fd);
    struct stat found;
    char path[PATH_MAX];
    enter(); change();
    int answer = syscall(call, fd);
    if (!answer && !fstat(fd, &found) && path_of(fd, path)) {
        if (S_ISDIR(found.st_mode)) record(SYNC_DIRECTORY, found.st_ino, 0, path, strlen(path), 0, 0);
        else record(SYNC, found.st_ino, 0, 0, 0, 0, 0);
    }
    leave();
    return answer;
}
int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

/* ---- names ---- */

static int renamed(int old_at, const char *old, int new_at, const char *new, unsigned flags) {
    char from[PATH_MAX], to[PATH_MAX];
    int watch = resolve(old_at, old, from) | resolve(new_at, new, to);
    enter();
    if (watch) change();
    int answer = syscall(SYS_renameat2, old_at, old, new_at, new, flags);
    if (!answer && watch) record(RENAME, 0, 0, from, strlen(from), to, strlen(to));
    leave();
    return answer;
}
int rename(const char *old, const char *new) { return renamed(AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int a, const char *old, int b, const char *new) { return renamed(a, old, b, new, 0); }
int renameat2(int a, const char *old, int b, const char *new, unsigned flags) { return renamed(a, old, b, new, flags); }

static int removed(int at, const char *name, int flags) {
    char path[PATH_MAX];
    int watch = resolve(at, name, path);
    enter();
    if (watch) change();
    int answer = syscall(SYS_unlinkat, at, name, flags);
    if (!answer && watch) record(flags & AT_REMOVEDIR ? RMDIR : UNLINK, 0, 0, path, strlen(path), 0, 0);
    leave();
    return answer;
}
int unlink(const char *name) { return removed(AT_FDCWD, name, 0); }
int unlinkat(int at, const char *name, int flags) { return removed(at, name, flags); }
int rmdir(const char *name) { return removed(AT_FDCWD, name, AT_REMOVEDIR); }
int remove(const char *name) {
    int answer = unlink(name);
    return answer && (errno == EISDIR || errno == EPERM) ? rmdir(name) : answer;
}

static int directory_made(int at, const char *name, mode_t mode) {
    char path[PATH_MAX];
    int watch = resolve(at, name, path);
    enter();
    if (watch) change();
    int answer = syscall(SYS_mkdirat, at, name, mode);
    if (!answer && watch) record(MKDIR, inode_at(path), 0, path, strlen(path), 0, 0);
    leave();
    return answer;
}
int mkdir(const char *name, mode_t mode) { return directory_made(AT_FDCWD, name, mode); }
int mkdirat(int at, const char *name, mode_t mode) { return directory_made(at, name, mode); }

static int linked(int a, const char *old, int b, const char *new, int flags) {
    char from[PATH_MAX], to[PATH_MAX];
    resolve(a, old, from);
    int watch = resolve(b, new, to);
    enter();
    if (watch) change();
    int answer = syscall(SYS_linkat, a, old, b, new, flags);
    if (!answer && watch) record(LINK, inode_at(to), 0, from, strlen(from), to, strlen(to));
    leave();
    return answer;
}
int link(const char *old, const char *new) { return linked(AT_FDCWD, old, AT_FDCWD, new, 0); }
int linkat(int a, const char *old, int b, const char *new, int flags) { return linked(a, old, b, new, flags); }

/* ---- requests to a server ---- */

ssize_t send(int fd, const void *data, size_t size, int flags) {
    enter(); change(); leave();
    return syscall(SYS_sendto, fd, data, size, flags, 0L, 0L);
}
ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length) {
    enter(); change(); leave();
    return syscall(SYS_sendto, fd, data, size, flags, to, length);
}
