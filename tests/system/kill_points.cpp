// Preloaded into a process: counts its system calls that change a file below a folder, kills it
// before the n-th, and keeps beside the folder what a power cut would leave of it.
//
// A write counts twice: before it, and in its middle.  What is kept is what was synced, by inode
// number: `f<inode>` is the content of a file, `d<inode>` the names in a directory.  A rename from
// one directory to another is one change of both, as in a file system with a journal.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

std::string root, kept;  // kept: empty until `kill_points_begin`
std::atomic<long> count{0};
long fatal = 0;
std::recursive_mutex lock;
std::vector<std::pair<std::string, std::string>> moved;  // directories that changed together
thread_local bool inside = false;

struct Inside {
  Inside() { inside = true; }
  ~Inside() { inside = false; }
};

bool is_on() { return !inside && !kept.empty(); }

std::string link_of(const char *link) {
  char found[4096];
  ssize_t length = readlink(link, found, sizeof found);
  return length > 0 ? std::string(found, length) : "";
}

std::string of_descriptor(int fd) {
  return link_of(("/proc/self/fd/" + std::to_string(fd)).c_str());
}

std::string parent_of(const std::string &path) { return path.substr(0, path.rfind('/')); }

// The path behind all links but the last part's.
std::string of_path(int fd, const char *path) {
  std::string whole = path;
  if (whole.empty() || whole[0] != '/')
    whole = (fd == AT_FDCWD ? link_of("/proc/self/cwd") : of_descriptor(fd)) + "/" + whole;
  while (whole.size() > 1 && whole.back() == '/') whole.pop_back();
  char *real = realpath((parent_of(whole) + "/").c_str(), nullptr);
  if (!real) return "";
  std::string found = std::string(real) + whole.substr(whole.rfind('/'));
  free(real);
  return found;
}

bool is_below(const std::string &path) {
  return path == root || path.compare(0, root.size() + 1, root + "/") == 0;
}

void pass() {
  if (++count == fatal) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
  }
}

bool touches(int fd) {
  if (!is_on()) return false;
  Inside guard;
  if (!is_below(of_descriptor(fd))) return false;
  pass();
  return true;
}

bool touches(int fd, const char *path) {
  if (!is_on() || !path) return false;
  Inside guard;
  if (!is_below(of_path(fd, path))) return false;
  pass();
  return true;
}

std::string place_of(char kind, ino_t inode) {
  return kept + "/" + kind + std::to_string(inode);
}

void replace(const std::string &place, const std::string &content) {
  std::string fresh = place + ".new";
  FILE *file = fopen(fresh.c_str(), "w");
  fwrite(content.data(), 1, content.size(), file);
  fclose(file);
  rename(fresh.c_str(), place.c_str());
}

void keep_file(int fd, ino_t inode) {
  std::string content;
  char chunk[65536];
  int again = open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC);
  if (again < 0) abort();  // a file that its writer may not read: not met
  for (ssize_t got; (got = read(again, chunk, sizeof chunk)) > 0;) content.append(chunk, got);
  close(again);
  replace(place_of('f', inode), content);
}

void keep_directory(const std::string &path) {
  struct stat found;
  DIR *directory = opendir(path.c_str());
  if (!directory) return;
  std::string listing;
  while (struct dirent *entry = readdir(directory)) {
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (lstat((path + "/" + name).c_str(), &found)) continue;
    listing += S_ISDIR(found.st_mode) ? "d " : "f ";
    listing += std::to_string(found.st_ino) + " " + std::to_string(found.st_mode & 07777);
    listing += " " + name + "\n";
  }
  closedir(directory);
  if (!stat(path.c_str(), &found)) replace(place_of('d', found.st_ino), listing);
}

void keep(int fd) {
  std::lock_guard<std::recursive_mutex> held(lock);
  struct stat found;
  if (fstat(fd, &found)) return;
  if (!S_ISDIR(found.st_mode)) return keep_file(fd, found.st_ino);
  std::string path = of_descriptor(fd);
  keep_directory(path);
  for (size_t at = moved.size(); at-- > 0;) {
    if (moved[at].first != path && moved[at].second != path) continue;
    keep_directory(moved[at].first == path ? moved[at].second : moved[at].first);
    moved.erase(moved.begin() + at);
  }
}

int synced(int fd, long number) {
  bool ours = touches(fd);
  int code = syscall(number, fd);
  if (ours && code == 0) {
    Inside guard;
    keep(fd);
  }
  return code;
}

int renamed(int from, const char *old, int to, const char *fresh, unsigned flags) {
  bool ours = touches(to, fresh);
  std::string before, after;
  if (ours) {
    Inside guard;
    before = parent_of(of_path(from, old));
    after = parent_of(of_path(to, fresh));
  }
  int code = syscall(SYS_renameat2, from, old, to, fresh, flags);
  if (ours && code == 0 && before != after) {
    std::lock_guard<std::recursive_mutex> held(lock);
    moved.emplace_back(before, after);
  }
  return code;
}

template <class Write>
ssize_t written(int fd, size_t size, Write write_some) {
  if (touches(fd) && size > 1 && ++count == fatal) {
    write_some(size / 2);
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
  }
  return write_some(size);
}

int opened(int fd, const char *path, int flags, mode_t mode) {
  if (flags & (O_CREAT | O_TRUNC)) touches(fd, path);
  return syscall(SYS_openat, fd, path, flags, mode);
}

}  // namespace

extern "C" {

void kill_points_begin(const char *folder, const char *beside, long at) {
  root = folder;
  fatal = at;
  kept = beside;
}

long kill_points_count() { return count; }

#define MODE                                        \
  mode_t mode = 0;                                  \
  if (flags & (O_CREAT | __O_TMPFILE)) {            \
    va_list more;                                   \
    va_start(more, flags);                          \
    mode = va_arg(more, mode_t);                    \
    va_end(more);                                   \
  }
int open(const char *path, int flags, ...) { MODE return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) {
  MODE return opened(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}
int openat(int fd, const char *path, int flags, ...) { MODE return opened(fd, path, flags, mode); }
int openat64(int fd, const char *path, int flags, ...) {
  MODE return opened(fd, path, flags | O_LARGEFILE, mode);
}

ssize_t write(int fd, const void *data, size_t size) {
  return written(fd, size, [=](size_t some) { return syscall(SYS_write, fd, data, some); });
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  return written(fd, size, [=](size_t some) { return syscall(SYS_pwrite64, fd, data, some, at); });
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
  return pwrite(fd, data, size, at);
}
ssize_t writev(int fd, const struct iovec *parts, int number) {
  touches(fd);
  return syscall(SYS_writev, fd, parts, number);
}
ssize_t sendfile(int to, int from, off_t *at, size_t size) {
  return written(to, size, [=](size_t some) { return syscall(SYS_sendfile, to, from, at, some); });
}
ssize_t sendfile64(int to, int from, off64_t *at, size_t size) {
  return sendfile(to, from, at, size);
}
ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *there, size_t size, unsigned flags) {
  return written(to, size, [=](size_t some) {
    return syscall(SYS_copy_file_range, from, at, to, there, some, flags);
  });
}

int ftruncate(int fd, off_t size) {
  touches(fd);
  return syscall(SYS_ftruncate, fd, size);
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }
int truncate(const char *path, off_t size) {
  touches(AT_FDCWD, path);
  return syscall(SYS_truncate, path, size);
}
int fallocate(int fd, int how, off_t at, off_t size) {
  touches(fd);
  return syscall(SYS_fallocate, fd, how, at, size);
}
int fallocate64(int fd, int how, off64_t at, off64_t size) { return fallocate(fd, how, at, size); }
int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }
int fchmod(int fd, mode_t mode) {
  touches(fd);
  return syscall(SYS_fchmod, fd, mode);
}

int rename(const char *old, const char *fresh) {
  return renamed(AT_FDCWD, old, AT_FDCWD, fresh, 0);
}
int renameat(int from, const char *old, int to, const char *fresh) {
  return renamed(from, old, to, fresh, 0);
}
int renameat2(int from, const char *old, int to, const char *fresh, unsigned flags) {
  return renamed(from, old, to, fresh, flags);
}
int link(const char *old, const char *fresh) {
  touches(AT_FDCWD, fresh);
  return syscall(SYS_linkat, AT_FDCWD, old, AT_FDCWD, fresh, 0);
}
int linkat(int from, const char *old, int to, const char *fresh, int flags) {
  touches(to, fresh);
  return syscall(SYS_linkat, from, old, to, fresh, flags);
}
int symlink(const char *target, const char *path) {
  touches(AT_FDCWD, path);
  return syscall(SYS_symlinkat, target, AT_FDCWD, path);
}
int symlinkat(const char *target, int fd, const char *path) {
  touches(fd, path);
  return syscall(SYS_symlinkat, target, fd, path);
}
int unlink(const char *path) {
  touches(AT_FDCWD, path);
  return syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}
int unlinkat(int fd, const char *path, int flags) {
  touches(fd, path);
  return syscall(SYS_unlinkat, fd, path, flags);
}
int rmdir(const char *path) {
  touches(AT_FDCWD, path);
  return syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}
int mkdir(const char *path, mode_t mode) {
  touches(AT_FDCWD, path);
  return syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}
int mkdirat(int fd, const char *path, mode_t mode) {
  touches(fd, path);
  return syscall(SYS_mkdirat, fd, path, mode);
}
int utimensat(int fd, const char *path, const struct timespec times[2], int flags) {
  touches(fd, path);
  return syscall(SYS_utimensat, fd, path, times, flags);
}
int futimens(int fd, const struct timespec times[2]) {
  touches(fd);
  return syscall(SYS_utimensat, fd, nullptr, times, 0);
}
int chmod(const char *path, mode_t mode) {
  touches(AT_FDCWD, path);
  return syscall(SYS_fchmodat, AT_FDCWD, path, mode);
}
int fchmodat(int fd, const char *path, mode_t mode, int flags) {
  touches(fd, path);
  if (flags == 0) return syscall(SYS_fchmodat, fd, path, mode);
  errno = EOPNOTSUPP;  // as the kernel that has no such flag
  return -1;
}
}
