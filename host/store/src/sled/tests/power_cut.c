/* A disk that forgets: preloaded into a process that writes below POWER_CUT_ROOT.
 *
 * Everything is passed on, so the process sees an ordinary file system. Beside it, POWER_CUT_DISK holds what would be there
 * after the power went: the bytes of a file as they were when it was last synced, and the names as they were at the last sync
 * of anything (a journal keeps names in order, and any sync writes it out). sync_file_range is not a sync.
 * What is below POWER_CUT_ROOT when the process begins is on the disk: the disk of an earlier life is gone on with in a folder of its own.
 * With POWER_CUT_EARLY, one write in four reaches the disk at once, and so does each that overwrites what is there: disks may also write
 * sooner than asked, and do so where a file does not grow. With POWER_CUT_AT=N, the power goes after the Nth write that overtook
 * OVERTAKEN_BYTES_MIN or more.
 * Children are other processes with a memory of their own: what they write below POWER_CUT_ROOT is not on the disk.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define INODES_MAX 8192
#define RANGES_MAX 65536
#define OVERTAKEN_BYTES_MIN (64 << 10)

struct inode { ino_t ino; unsigned id; int live; };
struct range { unsigned id; off_t from, to; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct inode inodes[INODES_MAX];
static struct range ranges[RANGES_MAX];
static unsigned inode_count, range_count, next_id = 1, seed = 12345;
static int names_changed = 1, early, overtakings_left;
static char root[4096], disk[4096];
static dev_t root_device;

static int (*real_open)(const char *, int, ...);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_fsync)(int), (*real_fdatasync)(int);
static int (*real_rename)(const char *, const char *), (*real_unlink)(const char *);

static int below_root(const char *path) { return root[0] && !strncmp(path, root, strlen(root)); }

static void fail(const char *what) {
    fprintf(stderr, "power_cut: %s: %s\n", what, strerror(errno));
    abort();
}

/* The number of a file; a new file never takes over the bytes of an old one with the same inode. */
static unsigned number(ino_t ino, int fresh) {
    for (unsigned i = 0; i < inode_count; i++) {
        if (inodes[i].live && inodes[i].ino == ino) {
            if (!fresh) return inodes[i].id;
            inodes[i].live = 0;
        }
    }
    if (inode_count == INODES_MAX) fail("too many files");
    inodes[inode_count] = (struct inode){ino, next_id++, 1};
    return inodes[inode_count++].id;
}

static int regular(int fd, struct stat *facts) {
    if (!root[0] || fstat(fd, facts) || !S_ISREG(facts->st_mode) || facts->st_dev != root_device) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below_root(path);
}

static int copy_file(unsigned id) {
    char path[4200];
    snprintf(path, sizeof path, "%s/%u", disk, id);
    int to = real_open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (to < 0) fail(path);
    return to;
}

static void copy_range(int from_fd, int to, off_t from, off_t until) {
    static char buffer[1 << 16];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", from_fd);
    int in = real_open(link, O_RDONLY | O_CLOEXEC);
    if (in < 0) fail("open again");
    while (from < until) {
        size_t want = until - from < (off_t)sizeof buffer ? (size_t)(until - from) : sizeof buffer;
        ssize_t got = pread(in, buffer, want, from);
        if (got <= 0) break;
        if (real_pwrite(to, buffer, got, from) != got) fail("copy");
        from += got;
    }
    close(in);
}

static off_t bytes_waiting(void) {
    off_t bytes = 0;
    for (unsigned i = 0; i < range_count; i++) bytes += ranges[i].to - ranges[i].from;
    return bytes;
}

static void wrote(int fd, struct stat *facts, off_t from, off_t to) {
    unsigned id = number(facts->st_ino, 0);
    if (early) {
        struct stat kept;
        int out = copy_file(id);
        if (fstat(out, &kept)) fail("size");
        int overwrites = to <= kept.st_size, at_once = overwrites || rand_r(&seed) % 4 == 0;
        if (at_once) copy_range(fd, out, from, to);
        close(out);
        if (overwrites && bytes_waiting() >= OVERTAKEN_BYTES_MIN && --overtakings_left == 0) raise(SIGKILL);
        if (at_once) return;
    }
    if (range_count == RANGES_MAX) fail("too many writes without a sync");
    ranges[range_count++] = (struct range){id, from, to};
}

static void list(FILE *out, const char *folder, const char *name) {
    DIR *entries = opendir(folder);
    struct dirent *entry;
    if (!entries) return;
    while ((entry = readdir(entries))) {
        char path[4600], below[4600];
        struct stat facts;
        if (entry->d_name[0] == '.' && (!entry->d_name[1] || entry->d_name[1] == '.')) continue;
        snprintf(path, sizeof path, "%.4000s/%.500s", folder, entry->d_name);
        snprintf(below, sizeof below, "%.4000s/%.500s", name, entry->d_name);
        if (lstat(path, &facts)) continue;
        if (S_ISDIR(facts.st_mode)) {
            fprintf(out, "d 0 %s\n", below);
            list(out, path, below);
        } else if (S_ISREG(facts.st_mode)) {
            fprintf(out, "f %u %s\n", number(facts.st_ino, 0), below);
        }
    }
    closedir(entries);
}

static void keep_names(void) {
    char names[4200], unfinished[4200];
    snprintf(names, sizeof names, "%s/names", disk);
    snprintf(unfinished, sizeof unfinished, "%s/names.part", disk);
    FILE *out = fopen(unfinished, "we");
    if (!out) fail(unfinished);
    list(out, root, "");
    if (fclose(out) || real_rename(unfinished, names)) fail(names);
    names_changed = 0;
}

static void synced(int fd) {
    struct stat facts;
    if (regular(fd, &facts)) {
        unsigned id = number(facts.st_ino, 0), kept = 0;
        int out = copy_file(id);
        for (unsigned i = 0; i < range_count; i++) {
            if (ranges[i].id == id) copy_range(fd, out, ranges[i].from, ranges[i].to);
            else ranges[kept++] = ranges[i];
        }
        range_count = kept;
        if (fstat(fd, &facts) || ftruncate(out, facts.st_size)) fail("size");
        close(out);
    }
    if (names_changed && root[0]) keep_names();
}

/* An earlier life synced this file, or it would not be there. */
static void take_over(const char *path, ino_t ino, off_t size) {
    int from = real_open(path, O_RDONLY | O_CLOEXEC), to = copy_file(number(ino, 1));
    if (from < 0) fail(path);
    copy_range(from, to, 0, size);
    close(from);
    close(to);
}

static void take_over_below(const char *folder) {
    DIR *entries = opendir(folder);
    struct dirent *entry;
    if (!entries) fail(folder);
    while ((entry = readdir(entries))) {
        char path[4600];
        struct stat facts;
        if (entry->d_name[0] == '.' && (!entry->d_name[1] || entry->d_name[1] == '.')) continue;
        snprintf(path, sizeof path, "%.4000s/%.500s", folder, entry->d_name);
        if (lstat(path, &facts)) fail(path);
        if (S_ISDIR(facts.st_mode)) take_over_below(path);
        else if (S_ISREG(facts.st_mode)) take_over(path, facts.st_ino, facts.st_size);
    }
    closedir(entries);
}

__attribute__((constructor)) static void begin(void) {
    const char *where = getenv("POWER_CUT_ROOT"), *to = getenv("POWER_CUT_DISK");
    struct stat facts;
    real_open = dlsym(RTLD_NEXT, "open64");
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    if (!where || !to || stat(where, &facts)) return;
    snprintf(root, sizeof root, "%s", where);
    snprintf(disk, sizeof disk, "%s", to);
    root_device = facts.st_dev;
    early = getenv("POWER_CUT_EARLY") != NULL;
    const char *cut_at = getenv("POWER_CUT_AT");
    overtakings_left = cut_at ? atoi(cut_at) : 0;
    /* A child would number files in its own way, on the same disk. */
    unsetenv("POWER_CUT_DISK");
    take_over_below(root);
    keep_names();
}

int open64(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    if (!(flags & O_CREAT) || !below_root(path)) return real_open(path, flags, mode);
    struct stat facts;
    pthread_mutex_lock(&lock);
    int existed = !lstat(path, &facts);
    int fd = real_open(path, flags, mode);
    if (fd >= 0 && !existed && !fstat(fd, &facts)) {
        number(facts.st_ino, 1);
        names_changed = 1;
    }
    pthread_mutex_unlock(&lock);
    return fd;
}
int open(const char *, int, ...) __attribute__((alias("open64")));

ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t at) {
    struct stat facts;
    pthread_mutex_lock(&lock);
    ssize_t done = real_pwrite(fd, bytes, length, at);
    if (done > 0 && regular(fd, &facts)) wrote(fd, &facts, at, at + done);
    pthread_mutex_unlock(&lock);
    return done;
}
ssize_t pwrite(int, const void *, size_t, off_t) __attribute__((alias("pwrite64")));

ssize_t write(int fd, const void *bytes, size_t length) {
    struct stat facts;
    if (!regular(fd, &facts)) return real_write(fd, bytes, length);
    pthread_mutex_lock(&lock);
    ssize_t done = real_write(fd, bytes, length);
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (done > 0) wrote(fd, &facts, at - done, at);
    pthread_mutex_unlock(&lock);
    return done;
}

int fsync(int fd) {
    pthread_mutex_lock(&lock);
    int done = real_fsync(fd);
    if (!done) synced(fd);
    pthread_mutex_unlock(&lock);
    return done;
}

int fdatasync(int fd) {
    pthread_mutex_lock(&lock);
    int done = real_fdatasync(fd);
    if (!done) synced(fd);
    pthread_mutex_unlock(&lock);
    return done;
}

int rename(const char *from, const char *to) {
    pthread_mutex_lock(&lock);
    int done = real_rename(from, to);
    names_changed |= below_root(to);
    pthread_mutex_unlock(&lock);
    return done;
}

int unlink(const char *path) {
    pthread_mutex_lock(&lock);
    int done = real_unlink(path);
    names_changed |= below_root(path);
    pthread_mutex_unlock(&lock);
    return done;
}
