"""Hostile tasks, each of which tries one thing that no task may do.

A body is that of a Python function.  If it raises or returns False, the attempt failed.  `c` holds
the canaries; `syscall` makes one by its x86-64 number, and raises what it refuses;
`works` tries a way at places until it works at one; `fill` sends to a socket all that it takes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Beast:
    """One hostile task."""

    kind: str
    name: str
    body: str
    reasons: tuple[str, ...] = ()  # how it must end; empty: anyhow
    outputs: tuple[str, ...] = ()  # which it wants taken
    listens: bool = False
    below: int = 0  # level up to which it is known to succeed
    only_x86: bool = False


DISK = ("disk_limit", "exit_nonzero", "signal", "time_limit")
MEMORY = ("memory_limit", "exit_nonzero", "signal")

FILES = [
    Beast("files", "read the token", "return bool(open(c['token']).read())"),
    Beast("files", "list the folder", "return 'client.json' in os.listdir(c['folder'])"),
    Beast("files", "append to the token", "open(c['token'], 'a').write('x')"),
    Beast("files", "truncate the token", "os.truncate(c['token'], 0)"),
    Beast("files", "replace the token", "open('t', 'w').write('x'); os.replace('t', c['token'])"),
    Beast("files", "delete the token", "os.unlink(c['token'])"),
    Beast("files", "open the folder to all", "os.chmod(c['folder'], 0o777)"),
    Beast("files", "change the token's time", "os.utime(c['token'], (0, 0))", below=1),
    Beast("files", "mark the token", "os.setxattr(c['token'], 'user.x', b'x')"),
    Beast("files", "lock the token", "import fcntl; fcntl.flock(open(c['token']), fcntl.LOCK_EX)"),
    Beast("files", "move the folder", "os.rename(c['folder'], c['folder'] + '2')"),
    Beast("files", "go up from the slot", "return 'HONEST' in open('../../9-9-9/work/out').read()"),
    Beast("files", "read ~/.ssh", "return bool(open(c['home'] + '/.ssh/id_rsa').read())"),
    Beast(
        "files",
        "plant a start-up file",
        "open(c['home'] + '/.bashrc', 'w').write('x'); return False",
    ),
    Beast("files", "plant a key", "open(c['home'] + '/.ssh/authorized_keys', 'w').write('x')"),
    Beast(
        "files", "read a neighbour's output", "return bool(open(c['neighbour'] + '/out').read())"
    ),
    Beast(
        "files", "forge a neighbour's output", "open(c['neighbour'] + '/out', 'w').write('FORGED')"
    ),
    Beast("files", "clear a neighbour's slot", "os.unlink(c['neighbour'] + '/out')"),
    Beast("files", "change a cached input", "open(c['cached'], 'r+').write('x')"),
    Beast(
        "files",
        "replace a cached input",
        "open('t', 'w').write('forge'); os.replace('t', c['cached'])",
    ),
    Beast("files", "write beside the slot", "open('../assignment.json', 'w').write('x')"),
    Beast("files", "write outside", "open(c['outside'] + '/mine', 'w').write('x')"),
    Beast("files", "change a file outside", "open(c['outside'] + '/data', 'a').write('x')"),
    Beast("files", "make a directory outside", "os.mkdir(c['outside'] + '/d')"),
    Beast("files", "write into the system", "open('/usr/lib/mine', 'w').write('x')"),
    Beast("files", "write into /etc", "open('/etc/cron.d/mine', 'w').write('x')"),
    Beast("files", "read /etc/shadow", "return bool(open('/etc/shadow').read())"),
    Beast("files", "leave a file in /dev/shm", "open('/dev/shm/' + c['name'], 'w'); return False"),
    Beast(
        "files",
        "open a disk",
        """
disks = glob.glob('/dev/[svx]d[a-z]*') + glob.glob('/dev/loop[0-9]')
return works(lambda name: os.open(name, os.O_RDONLY), *disks, '/dev/mem', '/dev/kmsg')""",
    ),
    Beast("files", "make a device", "os.mknod('d', 0o20666, os.makedev(1, 1)); os.open('d', 0)"),
    Beast(
        "files",
        "open a file by its handle",
        """
handle = ctypes.create_string_buffer(struct.pack('=Ii', 128, 0) + bytes(128))
mount = ctypes.create_string_buffer(8)
syscall(303, -100, b'/usr', handle, mount, 0)
syscall(304, os.open('/usr', os.O_RDONLY), handle, os.O_RDONLY)""",
    ),
]

OUTPUTS = [
    Beast(
        "outputs",
        "link to the token",
        "os.symlink(c['token'], 'out'); return False",
        outputs=("out",),
    ),
    Beast("outputs", "hard link to the token", "os.link(c['token'], 'out')", outputs=("out",)),
    Beast(
        "outputs",
        "link to the folder",
        "os.symlink(c['folder'], 'd'); return False",
        outputs=("d/client.json",),
    ),
    Beast(
        "outputs",
        "pattern over a link",
        "os.symlink(c['folder'], 'd'); return False",
        outputs=("*/*.json",),
    ),
    Beast(
        "outputs",
        "link through /proc",
        "os.symlink('/proc/self/cwd/' + '../' * 9 + c['token'], 'out'); return False",
        outputs=("out",),
    ),
    Beast("outputs", "pipe as output", "os.mkfifo('out'); return False", outputs=("out",)),
    Beast(
        "outputs",
        "socket as output",
        "socket.socket(socket.AF_UNIX).bind('out'); return False",
        outputs=("out",),
    ),
    Beast("outputs", "directory as output", "os.mkdir('out'); return False", outputs=("out",)),
    Beast(
        "outputs",
        "replace its stdout",
        "os.symlink(c['token'], '../s'); os.replace('../s', '../stdout')",
        outputs=("stdout",),
    ),
    Beast(
        "outputs",
        "names that hurt",
        "open('a\\n\\x1b[2J', 'w'); open('x' * 255, 'w'); open(b'\\xff\\xfe', 'w'); return False",
        outputs=("*",),
    ),
]

PROCESSES = [
    Beast("processes", "kill a process", "os.kill(c['pid'], 9)"),
    Beast("processes", "stop a process", "os.kill(c['pid'], signal.SIGSTOP)"),
    Beast("processes", "stop the client", "os.kill(c['client'], signal.SIGCONT)"),
    Beast("processes", "kill all", "os.kill(-1, signal.SIGTERM); return False"),
    Beast(
        "processes",
        "kill its parent",
        "os.kill(os.getppid(), 9); time.sleep(0.3);"
        " return os.getppid() != 1 and not os.path.exists('/proc/1/stat')",
    ),
    Beast(
        "processes",
        "signal by pidfd",
        "syscall(424, os.pidfd_open(c['pid']), 19, None, 0)",
        only_x86=True,
    ),
    Beast(
        "processes",
        "signal through a file's owner",
        """
import fcntl
r, w = os.pipe()
fcntl.fcntl(r, fcntl.F_SETOWN, c['pid'])
fcntl.fcntl(r, 10, signal.SIGSTOP)
fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)
os.write(w, b'x')
time.sleep(0.2)
return False""",
    ),
    Beast("processes", "trace a process", "syscall(101, 0x4206, c['pid'], 0, 0)", only_x86=True),
    Beast(
        "processes", "trace its parent", "syscall(101, 0x4206, os.getppid(), 0, 0)", only_x86=True
    ),
    Beast("processes", "read a process's memory", "open(f\"/proc/{c['pid']}/mem\", 'rb').read(0)"),
    Beast(
        "processes",
        "read a process's environment",
        "return bool(open(f\"/proc/{c['pid']}/environ\", 'rb').read())",
    ),
    Beast(
        "processes",
        "read its parent's environment and memory",
        """
return any(open(f'/proc/{os.getppid()}/{name}', 'rb').read(1) is None
           for name in ('environ', 'mem', 'auxv'))""",
    ),
    Beast(
        "processes",
        "reach files through /proc",
        "return bool(open(f\"/proc/{c['pid']}/root{c['token']}\").read())",
    ),
    Beast(
        "processes",
        "reach files through its parent",
        "return bool(open(f\"/proc/{os.getppid()}/root{c['token']}\").read())",
    ),
    Beast(
        "processes",
        "take a descriptor",
        "syscall(438, os.pidfd_open(c['pid']), 0, 0)",
        only_x86=True,
    ),
    Beast(
        "processes",
        "use an inherited descriptor",
        "return works(os.fstat, *range(3, 1024))",
    ),
    Beast(
        "processes",
        "read another's memory by call",
        """
buffer = ctypes.create_string_buffer(64)
vector = struct.pack('=QQ', ctypes.addressof(buffer), 64)
syscall(310, c['pid'], vector, 1, vector, 1, 0)""",
        only_x86=True,
    ),
    Beast(
        "processes",
        "limit another process",
        "resource.prlimit(c['pid'], resource.RLIMIT_NOFILE, (7, 7))",
    ),
    Beast("processes", "slow another process", "os.setpriority(os.PRIO_PROCESS, c['pid'], 19)"),
    Beast("processes", "bind another process", "os.sched_setaffinity(c['pid'], {0})"),
    Beast(
        "processes",
        "see other processes",
        "return os.path.exists(f\"/proc/{c['pid']}/stat\")",
        below=1,
    ),
    Beast(
        "processes",
        "push keys into a terminal",
        "import fcntl, termios; fcntl.ioctl(os.open('/dev/tty', os.O_RDWR), 0x5412, b'x')",
    ),
    Beast(
        "processes",
        "live on as a daemon",
        """
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.execve('/bin/sh', ['sh', '-c', 'sleep 30; sleep 30', 'stray-' + c['name']], {})
    os._exit(0)
time.sleep(0.2)
return False""",
    ),
    Beast(
        "processes",
        "live on by forks in a chain",
        """
until = time.monotonic() + 20
if os.fork() == 0:
    while time.monotonic() < until:
        os.setsid() if os.getpid() != os.getsid(0) else None
        if os.fork():
            os._exit(0)
        time.sleep(0.001)
    os._exit(0)
time.sleep(0.2)
return False""",
    ),
]

NETWORK = [
    Beast("network", "connect by TCP", "socket.create_connection(('127.0.0.1', c['tcp']), 1)"),
    Beast(
        "network",
        "connect by TCP to all of its own",
        "socket.create_connection(('0.0.0.0', c['tcp']), 1)",
    ),
    Beast(
        "network", "connect by IPv6", "socket.create_connection(('::ffff:127.0.0.1', c['tcp']), 1)"
    ),
    Beast(
        "network",
        "send by UDP",
        """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(b'x', ('127.0.0.1', c['udp']))
return False""",
    ),
    Beast(
        "network",
        "send by fast open",
        """
s = socket.socket()
s.sendto(b'x', 0x20000000, ('127.0.0.1', c['tcp']))""",
    ),
    Beast(
        "network",
        "connect to an abstract socket",
        "socket.socket(socket.AF_UNIX).connect('\\0' + c['name'])",
    ),
    Beast(
        "network",
        "connect to a socket outside",
        "socket.socket(socket.AF_UNIX).connect(c['outside'] + '/socket')",
    ),
    Beast(
        "network",
        "listen",
        """
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('0.0.0.0', c['port']))
s.listen()
time.sleep(0.5)
return False""",
        listens=True,
    ),
    Beast("network", "raw socket", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"),
    Beast("network", "packet socket", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"),
    Beast("network", "socket to the hypervisor", "socket.socket(40, socket.SOCK_STREAM)"),
    Beast("network", "socket of the kernel's cryptography", "socket.socket(38, 5)"),
    Beast("network", "netlink to the kernel's audit", "socket.socket(16, 3, 9)"),
    Beast(
        "network",
        "see the machine's interfaces",
        "return len(socket.if_nameindex()) > 1 or open('/proc/net/dev').read().count(':') > 1",
    ),
]

KERNEL = [
    Beast("kernel", "user namespace by unshare", "syscall(272, 0x10000000)", only_x86=True),
    Beast(
        "kernel",
        "user namespace by clone",
        "os._exit(0) if syscall(56, 0x10000011, 0, 0, 0, 0) == 0 else None",
        only_x86=True,
    ),
    Beast(
        "kernel",
        "user namespace by clone3",
        """
arguments = struct.pack('=8Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0)
os._exit(0) if syscall(435, arguments, 64) == 0 else None""",
        only_x86=True,
    ),
    Beast(
        "kernel",
        "enter a namespace",
        "syscall(308, os.open('/proc/self/ns/user', os.O_RDONLY), 0)",
        only_x86=True,
    ),
    Beast("kernel", "mount", "syscall(165, b'x', b'/tmp', b'tmpfs', 0, b'')", only_x86=True),
    Beast("kernel", "mount anew", "syscall(165, b'x', b'/', b'', 32 | 4096, b'')", only_x86=True),
    Beast("kernel", "unmount", "syscall(166, b'/proc', 2)", only_x86=True),
    Beast("kernel", "file system context", "syscall(430, b'tmpfs', 0)", only_x86=True),
    Beast("kernel", "change its root", "syscall(161, b'.')", only_x86=True),
    Beast("kernel", "key rings", "syscall(250, 0, -3, 1)", only_x86=True),
    Beast("kernel", "add a key", "syscall(248, b'user', b'x', b'y', 1, -3)", only_x86=True),
    Beast(
        "kernel",
        "bpf",
        "syscall(321, 0, struct.pack('=IIII', 2, 4, 4, 1) + bytes(100), 116)",
        only_x86=True,
    ),
    Beast(
        "kernel",
        "performance counters",
        "syscall(298, struct.pack('=IIQ', 1, 112, 0) + bytes(100), 0, -1, -1, 0)",
        only_x86=True,
    ),
    Beast("kernel", "io_uring", "syscall(425, 4, ctypes.create_string_buffer(120))", only_x86=True),
    Beast("kernel", "userfaultfd", "syscall(323, 1)", only_x86=True),
    Beast(
        "kernel", "shared memory of System V", "syscall(29, 0x6772, 4096, 0o1666)", only_x86=True
    ),
    Beast("kernel", "semaphores of System V", "syscall(64, 0x6772, 1, 0o1666)", only_x86=True),
    Beast("kernel", "messages of System V", "syscall(68, 0x6772, 0o1666)", only_x86=True),
    Beast(
        "kernel",
        "message queue of POSIX",
        "syscall(240, b'zoo', 0o102, 0o666, None)",
        only_x86=True,
    ),
    Beast("kernel", "calls of another ABI", "syscall(0x40000000 + 39)", only_x86=True),
    Beast(
        "kernel",
        "capabilities",
        """
text = open('/proc/self/status').read()
return any(int(line.split()[1], 16) for line in text.splitlines() if line[:6] in
           ('CapPrm', 'CapEff', 'CapAmb', 'CapInh')) or 'NoNewPrivs:\\t1' not in text""",
    ),
    Beast(
        "kernel",
        "become root",
        """
os.setresuid(0, 0, 0) if os.getuid() else syscall(59 + 10**6)
return True""",
    ),
    Beast(
        "kernel",
        "set-user-id program",
        """
shutil.copy('/bin/sh', 's')
os.chmod('s', 0o6755)
found = os.popen('./s -p -c "id -u"; su -c id 2>&1; sudo -n id 2>&1').read()
return 'uid=0' in found""",
    ),
    Beast("kernel", "core pattern", "os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)"),
    Beast(
        "kernel", "setting of the kernel", "os.open('/proc/sys/vm/overcommit_memory', os.O_RDWR)"
    ),
    Beast("kernel", "magic key", "os.open('/proc/sysrq-trigger', os.O_WRONLY)"),
    Beast(
        "kernel",
        "debug file systems",
        "return bool(os.listdir('/sys/kernel/debug') + os.listdir('/sys/kernel/tracing'))",
    ),
    Beast(
        "kernel",
        "its own cgroup",
        """
groups = glob.glob('/sys/fs/cgroup/*/') + glob.glob('/sys/fs/cgroup/')
return works(lambda name: os.mkdir(name + c['name']), *groups)""",
    ),
    Beast("kernel", "host name", "syscall(170, b'evil', 4)", only_x86=True),
    Beast("kernel", "clock", "time.clock_settime(time.CLOCK_REALTIME, time.time())"),
    Beast("kernel", "module", "syscall(313, os.open('/bin/sh', 0), b'', 0)", only_x86=True),
    Beast("kernel", "log of the kernel", "syscall(103, 10, 0, 0)", only_x86=True),
]

LIMITS = [
    Beast(
        "limits",
        "400 processes",
        """
made = 0
for _ in range(400):
    if os.fork() == 0:
        time.sleep(3)
        os._exit(0)
    made += 1
time.sleep(2)
return made >= 400""",
    ),
    Beast(
        "limits",
        "400 threads",
        """
for _ in range(400):
    threading.Thread(target=time.sleep, args=(3,), daemon=True).start()
time.sleep(2)""",
    ),
    Beast("limits", "memory", "x = bytearray(400 << 20); time.sleep(3)", MEMORY),
    Beast("limits", "memory beyond all limits", "x = bytearray(64 << 30)"),
    Beast(
        "limits",
        "memory of a child that left",
        """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        code = 'x = bytearray(400 << 20); import time; time.sleep(5)'
        os.execve(sys.executable, [sys.executable, '-S', '-c', code], {})
    os._exit(0)
time.sleep(4)""",
        MEMORY,
    ),
    Beast(
        "limits",
        "memory in many processes",
        """
for _ in range(8):
    if os.fork() == 0:
        x = bytearray(50 << 20)
        time.sleep(5)
        os._exit(0)
time.sleep(4)
os.wait()""",
        MEMORY,
    ),
    Beast(
        "limits",
        "memory of who hides",
        """
libc.prctl(4, 0, 0, 0, 0)
shutil.copy(sys.executable, 'p')
os.chmod('p', 0o111)
if os.fork() == 0:
    os.execve('./p', ['p', '-S', '-c', 'x = bytearray(400 << 20); import time; time.sleep(4)'], {})
time.sleep(3)
os.wait()""",
        (*MEMORY, "disk_limit"),
    ),
    Beast(
        "limits",
        "memory in files without a name",
        """
f = os.memfd_create('x')
for _ in range(90):
    os.write(f, bytes(1 << 20))
os.ftruncate(f, 90 << 20)
time.sleep(4)""",
        (*DISK, "memory_limit"),
    ),
    Beast(
        "limits",
        "memory in /dev/shm",
        """
with open('/dev/shm/x', 'wb') as f:
    for _ in range(400):
        f.write(bytes(1 << 20))
time.sleep(1)""",
    ),
    Beast(
        "limits",
        "deleted but open",
        """
for number in range(9):
    f = os.open(f'f{number}', os.O_CREAT | os.O_RDWR)
    os.unlink(f'f{number}')
    os.write(f, bytes(10 << 20))
time.sleep(4)""",
        DISK,
    ),
    Beast(
        "limits",
        "deleted but mapped",
        """
for number in range(9):
    f = os.open('f', os.O_CREAT | os.O_RDWR)
    os.unlink('f')
    os.write(f, bytes(10 << 20))
    c[number] = mmap.mmap(f, 10 << 20)
    os.close(f)
time.sleep(4)""",
        DISK,
    ),
    Beast(
        "limits",
        "deleted but open in a child that left",
        """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.environ.clear()
        for number in range(9):
            f = os.open('f', os.O_CREAT | os.O_RDWR)
            os.unlink('f')
            os.write(f, bytes(10 << 20))
        time.sleep(5)
    os._exit(0)
time.sleep(4)""",
        DISK,
    ),
    Beast(
        "limits",
        "40,000 empty files",
        """
for number in range(40000):
    open(f'{number}', 'w').close()
time.sleep(1)""",
        DISK,
    ),
    Beast(
        "limits",
        "20,000 directories",
        """
for number in range(20000):
    os.mkdir(f'{number}')
time.sleep(1)""",
        DISK,
    ),
    Beast(
        "limits",
        "deep directories",
        """
for _ in range(3000):
    os.mkdir('d' * 100)
    os.chdir('d' * 100)
time.sleep(1)""",
        DISK,
    ),
    Beast(
        "limits",
        "files behind a closed door",
        """
os.mkdir('d')
for number in range(4):
    open(f'd/{number}', 'wb').write(bytes(10 << 20))
os.chmod('d', 0)
os.chmod('.', 0)
time.sleep(2)""",
        DISK,
    ),
    Beast(
        "limits",
        "one big file",
        """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
open('f', 'wb').write(bytes(60 << 20))""",
    ),
    Beast(
        "limits",
        "many files",
        """
for number in range(6):
    open(f'{number}', 'wb').write(bytes(9 << 20))
time.sleep(1)""",
        DISK,
    ),
    Beast(
        "limits",
        "flood stdout",
        """
while True:
    sys.stdout.write('x' * 1000000)""",
        DISK,
    ),
    Beast(
        "limits",
        "huge sparse file",
        """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
os.truncate(os.open('f', os.O_CREAT | os.O_RDWR), 1 << 40)""",
    ),
    Beast(
        "limits",
        "raise its limits",
        """
for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC,
             resource.RLIMIT_DATA, resource.RLIMIT_NOFILE):
    try:
        resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return True
    except (ValueError, OSError):
        pass
return False""",
    ),
    Beast(
        "limits",
        "raise its limits in a child",
        """
try:
    resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE, (1 << 40, 1 << 40))
except (OSError, ValueError):
    return False""",
    ),
    Beast(
        "limits",
        "core dump",
        """
if os.fork() == 0:
    os.abort()
_, status = os.wait()
return os.WCOREDUMP(status) or bool(glob.glob('core*'))""",
    ),
    Beast(
        "limits",
        "open files",
        """
for _ in range(100000):
    os.open('/dev/null', os.O_RDONLY)""",
    ),
    Beast(
        "limits",
        "ignore the end",
        """
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
time.sleep(60)""",
        ("time_limit",),
    ),
    Beast("limits", "stop itself", "os.kill(0, signal.SIGSTOP); time.sleep(60)", ("time_limit",)),
    Beast("limits", "higher priority", "os.setpriority(os.PRIO_PROCESS, 0, -5)"),
    Beast("limits", "real time", "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))"),
    Beast("limits", "lock memory", "libc.mlockall(3) == 0 or c['x']; bytearray(300 << 20)"),
]

# Written later, by somebody who tried to get out of walls that held all of the above.
LATER = [
    Beast(
        "files",
        "forge its own report",
        """
slot = os.path.dirname(os.readlink('/proc/self/fd/1'))
open(slot + '/report.json', 'w').write('forged')""",
    ),
    Beast("files", "go up from its stdout", "os.stat('../client.json', dir_fd=1)"),
    Beast(
        "files",
        "write through its root in /proc",
        "open('/proc/self/root' + c['outside'] + '/mine', 'w').write('x')",
    ),
    Beast(
        "files",
        "name the token by a descriptor of a directory",
        """
here = os.open('.', os.O_PATH | os.O_DIRECTORY)
os.open('../' * 20 + c['token'].lstrip('/'), os.O_RDONLY, dir_fd=here)""",
    ),
    Beast(
        "files",
        "open a device that makes others",
        """
names = 'kvm', 'fuse', 'net/tun', 'loop-control', 'userfaultfd', 'vhost-net', 'ptmx'
return works(lambda name: os.open('/dev/' + name, os.O_RDWR), *names)""",
    ),
    Beast(
        "outputs",
        "a slot that cannot be removed",
        """
import fcntl
for depth in range(60):
    os.mkdir('a\\nb')
    os.chdir('a\\nb')
    open('f\\n', 'w').close()
    os.chmod('f\\n', 0)
    os.chmod('..', 0o111)
f = os.open('.', os.O_RDONLY)
fcntl.ioctl(f, 0x40086602, struct.pack('l', 0x30))""",
    ),
    Beast(
        "outputs",
        "a sparse output",
        "os.truncate(os.open('out', os.O_CREAT | os.O_RDWR), 1 << 40)",
        outputs=("out",),
    ),
    Beast(
        "processes",
        "stop its keeper",
        """
os.kill(os.getppid(), signal.SIGSTOP)
time.sleep(0.3)
return ') T ' in open(f'/proc/{os.getppid()}/stat').read()""",
    ),
    Beast(
        "processes",
        "flood its keeper with signals",
        """
for _ in range(50000):
    os.kill(os.getppid(), signal.SIGCHLD)
return False""",
        ("",),
    ),
    Beast(
        "processes",
        "let the kernel take its keeper first",
        "open(f'/proc/{os.getppid()}/oom_score_adj', 'w').write('1000')",
    ),
    Beast(
        "processes",
        "hide from the kernel's killer",
        "open('/proc/self/oom_score_adj', 'w').write('-900')",
    ),
    Beast(
        "processes",
        "enter its keeper's namespaces",
        "syscall(308, os.pidfd_open(os.getppid()), 0x20000)",
        only_x86=True,
    ),
    Beast(
        "processes",
        "take its keeper's descriptors",
        """
for name in os.listdir(f'/proc/{os.getppid()}/fd'):
    os.write(os.open(f'/proc/{os.getppid()}/fd/{name}', os.O_WRONLY), b'ended 0 0')
    return True
return False""",
    ),
    Beast(
        "network",
        "connect by multipath TCP",
        """
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
s.settimeout(1)
s.connect(('127.0.0.1', c['tcp']))""",
    ),
    Beast(
        "network",
        "connect a datagram far away",
        """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(('192.0.2.1', 53))
s.send(b'x')""",
    ),
    Beast("network", "ask for a name", "socket.getaddrinfo('example.org', 80)"),
    Beast(
        "kernel",
        "calls of a 32-bit program",
        """
code = bytes.fromhex('b814000000cd80c3')  # mov eax, getpid; int 0x80; ret
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(code)
place = ctypes.addressof(ctypes.c_char.from_buffer(page))
return ctypes.CFUNCTYPE(ctypes.c_int)(place)() == os.getpid()""",
        only_x86=True,
    ),
    Beast(
        "kernel",
        "use up the user's watches of files",
        """
for _ in range(100):
    syscall(294, 0)""",
        only_x86=True,
    ),
    Beast(
        "kernel",
        "user namespace by a program",
        "return 'uid=0' in os.popen('unshare -Ur id 2>&1; bwrap --bind / / id 2>&1').read()",
    ),
    Beast(
        "kernel", "priority of real time for disks", "syscall(251, 1, 0, 1 << 13)", only_x86=True
    ),
    Beast(
        "limits",
        "space set aside",
        """
for number in range(6):
    os.posix_fallocate(os.open(f'{number}', os.O_CREAT | os.O_RDWR), 0, 9 << 20)
time.sleep(1)""",
        DISK,
    ),
    Beast(
        "limits",
        "40,000 names of one file",
        """
open('f', 'w').close()
for number in range(40000):
    os.link('f', f'{number}')
time.sleep(1)""",
        DISK,
    ),
    Beast(
        "limits",
        "space in attributes",
        """
for number in range(8000):
    open(f'{number}', 'w').close()
    os.setxattr(f'{number}', 'user.x', bytes(3900))
time.sleep(1)""",
        DISK,
    ),
    Beast(
        "limits",
        "shared memory without a name",
        "x = mmap.mmap(-1, 400 << 20); x.write(bytes(400 << 20)); time.sleep(3)",
        MEMORY,
    ),
    Beast(
        "limits",
        "memory in pipes",
        """
import fcntl
for _ in range(400):
    r, w = os.pipe()
    fcntl.fcntl(w, 1031, 1 << 20)
    os.write(w, bytes(1 << 20))
    c[w] = r
time.sleep(3)""",
        MEMORY,
    ),
    Beast(
        "limits",
        "memory in sockets",
        """
for _ in range(500):
    pair = socket.socketpair()
    for one in pair:
        fill(one)
    c[pair] = pair
time.sleep(8)""",
        MEMORY,
    ),
    Beast(
        "limits",
        "memory in files on their way",
        """
a, b = socket.socketpair()
for _ in range(30):
    f = os.memfd_create('x')
    os.write(f, bytes(10 << 20))
    socket.send_fds(a, [b'x'], [f])
    os.close(f)
time.sleep(8)""",
        (*DISK, "memory_limit"),
    ),
    Beast(
        "limits",
        "memory in page tables",
        """
room = mmap.mmap(-1, 1 << 40, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, mmap.PROT_READ)
end = time.monotonic() + 6
for at in range(0, 1 << 40, 2 << 20):
    room[at]
    if at % (1 << 32) == 0:
        used = open('/proc/self/status').read().partition('VmPTE:')[2].split()[0]
        if time.monotonic() > end or int(used) > 600 << 10:
            break
time.sleep(3)""",
        MEMORY,
    ),
    Beast(
        "processes",
        "move another process's pages",
        "syscall(256, c['pid'], 64, ctypes.byref((ctypes.c_ulong * 1)(1)), 0)",
        only_x86=True,
    ),
    Beast(
        "processes",
        "compare itself with another process",
        "syscall(312, os.getpid(), c['pid'], 2, 0, 0)",
        only_x86=True,
    ),
    Beast(
        "processes",
        "have another process's memory paged out",
        """
fd = syscall(434, c['pid'], 0)
where = ctypes.create_string_buffer(struct.pack('QQ', 0x400000, 4096))
syscall(440, fd, where, 1, 21, 0)""",
    ),
    Beast(
        "processes",
        "free the memory of another that ends",
        "syscall(448, syscall(434, c['pid'], 0), 0)",
    ),
    Beast(
        "kernel", "drop the machine's caches", "open('/proc/sys/vm/drop_caches', 'w').write('1')"
    ),
    Beast(
        "kernel",
        "change how the kernel overcommits",
        "open('/proc/sys/vm/overcommit_memory', 'r+').write('1')",
    ),
    Beast(
        "kernel",
        "switch a processor off",
        """
for name in glob.glob('/sys/devices/system/cpu/cpu*/online'):
    open(name, 'r+').write('0')
    return True
return False""",
    ),
    Beast(
        "kernel",
        "ask for raw ports",
        "syscall(172, 3)",
        only_x86=True,
    ),
    Beast(
        "kernel",
        "secret memory",
        "syscall(447, 0)",
    ),
    Beast(
        "files",
        "watch the folder",
        """
fd = libc.inotify_init1(0)
if fd < 0 or libc.inotify_add_watch(fd, c['folder'].encode(), 0xfff) < 0:
    raise OSError('refused')""",
    ),
    Beast(
        "files",
        "reach the token through a process's directory",
        "return bool(open('/proc/1/cwd/' + os.path.basename(c['token'])).read())",
    ),
    Beast(
        "outputs",
        "an output that changes while it is read",
        """
open('result', 'w').write('fine')
if not os.fork():
    os.setsid()
    while True:
        for way in (lambda: os.symlink(c['token'], 't'), lambda: open('t', 'w').close()):
            try:
                way(); os.rename('t', 'result')
            except OSError:
                pass
return False""",
        outputs=("result",),
    ),
    Beast(
        "outputs",
        "very many outputs",
        """
for number in range(30_000):
    open(f'{number}.dat', 'w').close()
return False""",
        outputs=("*.dat",),
    ),
    Beast(
        "limits",
        "threads by the thousand",
        """
gate = threading.Event()
for number in range(3000):
    threading.Thread(target=gate.wait, daemon=True).start()
time.sleep(1)""",
    ),
    Beast(
        "kernel",
        "take the machine's contexts of asynchronous input and output",
        """
room = (ctypes.c_ulong * 1)(0)
syscall(206, 65536, room)""",
        only_x86=True,
    ),
    Beast(
        "files",
        "make others wait for a file by a lease",
        """
import fcntl
fd = os.open('mine', os.O_CREAT | os.O_RDWR)
os.close(fd)
fcntl.fcntl(os.open('mine', os.O_RDWR), 1024, fcntl.F_WRLCK)""",
    ),
    Beast(
        "limits",
        "use up the user's signals on their way",
        """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
info = ctypes.create_string_buffer(struct.pack('iii', signal.SIGRTMIN, 0, -1) + bytes(116))
for _ in range(20000):
    syscall(129, os.getpid(), signal.SIGRTMIN, info)""",
        only_x86=True,
    ),
    Beast(
        "limits",
        "use up the user's timers",
        """
event = ctypes.create_string_buffer(struct.pack('qii', 0, 0, 1) + bytes(48))
for _ in range(20000):
    syscall(222, 1, event, ctypes.byref(ctypes.c_int()))""",
        only_x86=True,
    ),
    Beast(
        "limits",
        "use up the user's descriptors on their way",
        """
for _ in range(60):
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    c[a] = a, b
    for _ in range(8):
        socket.send_fds(a, [b'x'], [0] * 253)""",
    ),
    Beast(
        "limits",
        "the machine's huge pages",
        """
page = libc.mmap
page.restype = ctypes.c_void_p
room = page(None, ctypes.c_size_t(2 << 20), 3, 0x40022, -1, ctypes.c_long(0))
return room not in (None, ctypes.c_void_p(-1).value)""",
    ),
    Beast("kernel", "write all of the machine's files to disk", "syscall(162)", only_x86=True),
    Beast(
        "kernel",
        "write all of a file system to disk",
        "syscall(306, os.open('/usr', os.O_RDONLY))",
        only_x86=True,
    ),
    Beast(
        "files",
        "close an input to others by its descriptor",
        "os.fchmod(os.open(c['cached'], os.O_RDONLY), 0)",
    ),
    Beast(
        "files",
        "close the system's programs to others by a descriptor",
        "os.fchmod(os.open('/usr/bin/env', os.O_RDONLY), 0o755)",
    ),
    Beast(
        "files",
        "change the time of a program by its descriptor",
        """
f = os.open('/usr/bin/env', os.O_RDONLY)
os.utime(f, (os.fstat(f).st_atime, os.fstat(f).st_mtime))""",
        below=1,
    ),
    Beast(
        "kernel",
        "take the machine's pages by a device's memory",
        """
more = glob.glob('/dev/dma_heap/*') + glob.glob('/dev/vhost*')
return works(lambda name: os.open(name, os.O_RDWR), '/dev/kvm', '/dev/udmabuf', *more)""",
    ),
    Beast(
        "kernel",
        "keep the other half of a processor's core idle",
        "return libc.prctl(62, 1, 0, 0, 0) == 0",
    ),
    Beast(
        "limits",
        "memory in connections of its own network",
        """
server = socket.create_server(('127.0.0.1', 0), backlog=500)
for _ in range(300):
    one = socket.create_connection(server.getsockname())
    c[one] = one, server.accept()[0]
    fill(one)
time.sleep(8)""",
        MEMORY,
    ),
    Beast(
        "limits",
        "memory in datagrams of its own network",
        """
for _ in range(900):
    c[_] = one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 30)
    one.bind(('127.0.0.1', 0))
    for _ in range(60):
        one.sendto(bytes(8000), one.getsockname())
time.sleep(8)""",
        MEMORY,
    ),
    Beast(
        "processes",
        "leave a child to its keeper",
        """
if syscall(56, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve('/bin/sh', ['sh', '-c', 'sleep 30; sleep 30', 'stray-' + c['name']], {})
    os._exit(0)
time.sleep(0.2)
return False""",
        only_x86=True,
    ),
    Beast("processes", "slow its session", "open('/proc/self/autogroup', 'w').write('19')"),
    Beast(
        "files",
        "be told of changes in a folder",
        "import fcntl\nfcntl.fcntl(os.open('/usr/bin', os.O_RDONLY), 1026, 0x8000001f)",
    ),
    Beast(
        "limits",
        "memory in rules of its own",
        """
for _ in range(500):
    rules = syscall(444, struct.pack('=QQQ', 0, 3, 0), 16, 0)
    for port in range(65536):
        syscall(445, rules, 2, struct.pack('=QQ', 1, port), 0)""",
        MEMORY,
    ),
    Beast(
        "limits",
        "long symbolic links",
        "for n in range(15000): os.symlink('x' * 4000, f'{n}')\ntime.sleep(8)",
        DISK,
    ),
    Beast(
        "limits",
        "a hole in its standard output",
        "os.lseek(1, 1 << 40, 0); os.write(1, b'x')",
        ("exit_nonzero", "disk_limit"),
        outputs=("stdout",),
    ),
    Beast(
        "limits",
        "use up the pages of the user's pipes",
        """
for _ in range(1900):
    r, w = c[_] = os.pipe()
    os.write(w, bytes(4096))
time.sleep(8)""",
        MEMORY,
    ),
    Beast(
        "limits",
        "larger pipes than others have",
        "import fcntl\nfcntl.fcntl(os.pipe()[1], 1031, 1 << 20)",
    ),
    Beast(
        "limits",
        "memory in connections that nobody accepts",
        """
far = socket.create_server(('127.0.0.1', 0), backlog=4096)
near = socket.socket(socket.AF_UNIX)
near.bind('s')
near.listen(4096)
for server in [far] * 300 + [near] * 400:
    with socket.socket(server.family) as one:
        one.setblocking(server is far)
        one.connect(server.getsockname())
        fill(one)
time.sleep(8)""",
        MEMORY,
    ),
    Beast(
        "limits",
        "memory in mappings",
        """
libc.mmap.restype = ctypes.c_void_p
base = libc.mmap(None, ctypes.c_size_t(1 << 30), 0, 0x4022, -1, ctypes.c_long(0))
for at in range(base, base + (1 << 28), 8192):
    libc.mprotect(ctypes.c_void_p(at), 4096, 1)
for _ in range(12):
    if os.fork() == 0:
        time.sleep(8)
        os._exit(0)
time.sleep(8)""",
        MEMORY,
    ),
    Beast(
        "limits",
        "memory in empty files",
        """
for _ in range(20):
    if os.fork() == 0:
        try:
            while True:
                os.memfd_create('x')
        except OSError:
            time.sleep(8)
        os._exit(0)
time.sleep(8)""",
        MEMORY,
    ),
    Beast("limits", "huge pages in a file", "os.memfd_create('x', os.MFD_HUGETLB)"),
    Beast("network", "socket whose protocol is a module", "socket.socket(2, 1, 132)"),
    Beast("network", "pair of sockets of another family", "socket.socketpair(30, 1)"),
    Beast(
        "files",
        "change the flags of a program by its descriptor",
        """
import fcntl
f = os.open('/usr/bin/env', os.O_RDONLY)
flags = fcntl.ioctl(f, 0x80086601, bytes(8))
fcntl.ioctl(f, 0x40086602, flags)""",
    ),
    Beast(
        "limits",
        "higher priority where its user may have it",
        "return resource.getrlimit(resource.RLIMIT_NICE) != (0, 0)",
    ),
]

ZOO = [*FILES, *OUTPUTS, *PROCESSES, *NETWORK, *KERNEL, *LIMITS, *LATER]
